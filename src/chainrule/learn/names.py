"""Names to learn from, of at most seven letters."""

NAMES = """
aaron abel abigail ada adam adele adrian agatha agnes aidan aisha alan albert alessia alex alfred ali alice alicia
alina alison alma alvin amal amanda amara amber amelia amina amir amos amy ana anders andrea andrew angela anika
anita ann anna annabel anthony antonia antonio april ari arjun arnold arthur asa asha astrid audrey august aurora
ava axel barbara basil bella ben bernard beth bianca bill bonnie boris brandon brenda brian bridget bruce bruno
caleb camila carina carl carla carlos carmen carol casper cecilia cedric charles chloe clara claude claudia clement
colin connor cora craig cyrus daisy damian daniel daniela daphne daria david dawn deborah delia denis denise derek
diana diego dina dirk dominic donald dora doris dorothy douglas duncan dylan edgar edith edmund eduardo edward edwin
eileen elaine eleanor elena eli elias elisa ella ellen elliot elsa elvira emanuel emil emilia emily emma eric erica
erin ernest esther ethan eugene eva evelyn ezra fabian faith fatima felix fiona flora frances francis frank franz
freya gabriel gareth gavin gemma george gerald gerda gianna gideon gilbert gina gloria gordon grace graham gregory
greta gustav hana hannah harold harriet harry harvey hassan hazel heather hector heidi helen helena helga henry
herbert herman hilda holly homer hope howard hubert hugh hugo ian ida ignacio igor imogen ines ingrid irene iris
irma isaac isabel isla ismael ivan ivy jacob jade james jan jane janet jared jasmine jason jasper javier jean jeremy
jerome jesse jessica joan joanna joel johann john jonas jordan joseph joshua josie joyce juan judith julia julian
juliet june justin kai kamal karen karim karina karl kate keith kelly kenneth kevin khalid kiara kim kira klara
klaus konrad kurt kyle laila lara larissa laura lauren layla lea leah leila lena leo leon leonard leonora leroy
leslie levi lewis liam lila lillian lily lina linda linus lionel lisa livia logan lois lola lorenzo lorna louis
louise luca lucas lucia lucy ludwig luis luna lydia mabel magnus maia malcolm manuel mara marc marcel marcus maria
marian marie marilyn marina mario marion marius mark martha martin mary mateo matilda matthew maureen maurice max
maxine maya megan melanie melissa michael miguel mila miles milo mina mira miranda miriam molly mona monica morgan
moritz muriel murray myra nadia nadine nancy naomi natalia natalie nathan neil nellie nelson nicola nicole niels
nigel nina noah noel nora norma norman octavia odette olga oliver olivia omar orlando oscar oswald otis otto owen
pablo paloma pamela pascal patrick paul paula pauline pedro percy perry peter petra philip phoebe phyllis pierre
piper quentin quincy rachel rafael ralph ramona raphael rashid raymond rebecca regina renata reuben rex rhoda
ricardo richard rita robert roberta robin rodney roger roland roman romeo ronald rosa rose ross rowan roxana roy
ruby rudolf rufus rupert russell ruth ryan sabina sabrina salma sam samir samuel sandra sara sarah saul selena selma
serena seth sharon shirley sibyl sidney sigrid silas silvia simon simone sofia solomon sonia sophia sophie stefan
stella stephen steven stuart susan susanna sven sybil tabitha tamara tanya tara tatiana terence teresa thea thomas
tiffany timothy tina tobias tomas tracy tristan ulrich una uriah ursula valerie vanessa vera victor vincent viola
violet vivian walter wanda warren wendy werner wilfred william willow winston xavier xenia yasmin yolanda yusuf
yvette yvonne zachary zara zelda zoe zora
"""
