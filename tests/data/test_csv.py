"""CSV files are read strictly: whole, or not at all and with an error that says where."""

import csv
import io
import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris

from chainrule import data, nn
from chainrule.data import tables
from chainrule.data.tables import read_table
from hostile_texts import hostile_tables, table_is_read


@pytest.fixture
def file(tmp_path):
    def write(content, name="f.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def test_numbers_and_a_header(file):
    examples = data.read_csv(file("a,b,y\n1,2,3\n-4,5e1,6.5\n"))
    assert examples.inputs == [[1.0, 2.0], [-4.0, 50.0]]
    assert examples.targets == [3.0, 6.5]
    assert (examples.columns, examples.target, examples.classes) == (["a", "b"], "y", [])
    assert isinstance(examples, data.Dataset)
    assert repr(examples) == "<CsvDataset of 2 examples: a, b -> y>"


def test_a_table_that_another_tool_wrote(file):
    iris = load_iris()
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([*iris.feature_names, "species"])
    for row, target in zip(iris.data, iris.target, strict=True):
        writer.writerow([*row, iris.target_names[target]])
    examples = data.read_csv(file(text.getvalue()))
    assert examples.inputs == iris.data.tolist()
    assert examples.targets == iris.target.tolist()
    assert examples.classes == list(iris.target_names)
    assert examples.columns == iris.feature_names


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3), min_size=1, max_size=9)
)
def test_every_float_comes_back_to_the_bit(file, rows):
    text = io.StringIO()
    csv.writer(text).writerows([["a", "b", "y"], *rows])
    examples = data.read_csv(file(text.getvalue()))
    assert [[number.hex() for number in (*x, y)] for x, y in examples] == [[n.hex() for n in row] for row in rows]


def test_without_a_header(file):
    assert data.read_csv(file("1,2,3\n4,5,6\n")).columns == ["x0", "x1"]
    flowers = data.read_csv(file("5.1,3.5,setosa\n4.9,3.0,virginica\n"))
    assert flowers.targets == [0, 1]
    assert data.read_csv(file("2019,2020\n1,2\n"), header=True).columns == ["2019"]


def test_the_target_by_name_and_by_index(file):
    path = file("a,b,c\n1,2,3\n")
    assert data.read_csv(path, "a")[0] == ([2.0, 3.0], 1.0)
    assert data.read_csv(path, 1)[0] == ([1.0, 3.0], 2.0)
    assert data.read_csv(path, -1)[0] == ([1.0, 2.0], 3.0)


def test_numbers_as_classes(file):
    examples = data.read_csv(file("a,y\n1,10\n2,9\n3,10\n"), labels=True)
    assert examples.classes == [9, 10]
    assert examples.targets == [1, 0, 1]
    assert data.read_csv(file("a,y\n1,10\n2,old\n"), labels=True).classes == ["10", "old"]


@pytest.mark.parametrize(
    "content",
    [
        "\ufeffa,b\n1,2\n",  # a byte order mark, as spreadsheets write it
        "a,b\r\n1,2\r\n",
        "a;b\n1;2\n",
        "a\tb\n1\t2\n",
        'a,b\n"1","2"\n',
        "\n\na,b\n\n1,2\n\n\n",
        " a , b \n 1 , 2 \n",
        "a,b\n1,2",
    ],
)
def test_the_dialects_of_csv(file, content):
    examples = data.read_csv(file(content))
    assert examples[0] == ([1.0], 2.0)
    assert (examples.columns, examples.target) == (["a"], "b")


def test_quoted_cells_may_hold_delimiters_and_lines(file):
    examples = data.read_csv(file('"size, in m","the\nkind"\n1,"a ""b"", c"\n2,d\n'))
    assert examples.columns == ["size, in m"]
    assert examples.classes == ['a "b", c', "d"]


WRONG = {
    "a,b,y\n1,2,3\n1,,3\n": "row 3, column 'b': found nothing, a missing value, where a number was expected",
    "a,b,y\n1,NA,3\n": "row 2, column 'b': found 'NA', a missing value",
    "a,b,y\n\n1,nan,3\n": "row 3, column 'b': found 'nan', a missing value",
    "a,b,y\n1,two,3\n1,2,3\n": "row 2, column 'b': found 'two', where a number was expected",
    'a,b,y\n1,"1,234",3\n': "column 'b': found '1,234', where a number was expected; write 1234 without the comma for",
    "a,b,y\n1,2024-05-06,3\n": "column 'b': found '2024-05-06', .* it looks like a date or a time: write it as numbers",
    "a,b,y\n" + "".join(f"1,text {k},3\n" for k in range(21)): "row 2, .*; every row has another text here: leave the",
    "a,b,y\n" + "".join(f"1,text {k},3\n" * 2 for k in range(21)): "the column has 21 different texts, of which 20 at",
    "a,b,y\n1,inf,3\n": "row 2, column 'b': found 'inf', where a finite number was expected",
    "a,b,y\n1,1e999,3\n": "row 2, column 'b': found '1e999', where a finite number was expected",
    "a,b,y\n1,1_000,3\n": "row 2, column 'b': found '1_000', where a number was expected",
    "a;b;y\n1;2,5;3\n": "row 2, column 'b': found '2,5', where a number was expected; write a decimal point",
    "a,b,y\n1,2,3\n1,2,x\n1,2,5\n": "row 3, column 'y': found 'x', where a number was expected; 2 of the 3 entries",
    "a,b,y\n1,2,x\n1,2,\n": "row 3, column 'y': found nothing, a missing value",
    "a,b,y\n1,2\n": "row 2: found 2 cells, where row 1 has 3",
    "a,b,y\n1,2,3,4\n": "row 2: found 4 cells, where row 1 has 3",
    "a,b,y\n1\n": "row 2: found 1 cell, where row 1 has 3",
    "a,b,y\n,,\n": "row 2, column 'a': found nothing",
    "": "is empty",
    "\n \n": "is empty",
    "a,b\n": "has a header and no rows below it",
    "a,b,a\n1,2,3\n": "row 1: columns 1 and 3 are both called 'a'",
    "a,,b\n1,2,3\n": "row 1: column 2 of the header has no name",
    "a\n1\n": "has the target 'a' and no other column to learn from",
    'a,b\n"1,2\n': "row 2: it is not CSV: unexpected end of data",
    'a,b\n"1"x,2\n': "row 2: it is not CSV",
    "a,b\n" + "1" * 200_000 + ",2\n": "row 2: it is not CSV: field larger than field limit",
    "a,b\n" + "x" * 1000 + ",2\n": "row 2, column 'a': found 'xxxxxxxxxx.*…', where",
    b"a,b\n1,\xe9\n": "line 2: found byte 0xe9, which is not UTF-8; save the file as UTF-8",
    b"\xff\xfea\x00,\x00b": "is not a text in utf-8: truncated data",
}


@pytest.mark.parametrize("content", WRONG, ids=lambda content: repr(content[:30]))
def test_a_mistake_is_named_with_its_place(file, content):
    path = file(content)
    with pytest.raises(ValueError, match=WRONG[content]) as caught:
        data.read_csv(path)
    message = str(caught.value)
    assert message.startswith(repr(path))
    assert "\n" not in message
    assert len(message) - len(path) < 200


def test_arguments_that_do_not_fit_the_file(file, tmp_path):
    path = file("age,size,y\n1,2,3\n")
    with pytest.raises(ValueError, match="has no column 'sise': did you mean 'size'"):
        data.read_csv(path, "sise")
    with pytest.raises(ValueError, match="has no column 'q': it has age, size, y"):
        data.read_csv(path, "q")
    with pytest.raises(ValueError, match="has 3 columns, and none of the index 3: count from 0"):
        data.read_csv(path, 3)
    with pytest.raises(ValueError, match="`header` must be True, False or 'auto', got 'yes'"):
        data.read_csv(path, header="yes")
    with pytest.raises(ValueError, match="`labels` must be True, False or 'auto', got 'all'"):
        data.read_csv(path, labels="all")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        data.read_csv(tmp_path / "missing.csv")
    with pytest.raises(ValueError, match="is not a plain file; give the name of a CSV file"):
        data.read_csv(tmp_path)


def test_a_column_of_many_is_listed_in_short(file):
    path = file(",".join(f"c{k}" for k in range(20)) + "\n" + ",".join("1" * 20) + "\n")
    with pytest.raises(ValueError, match="it has c0, c1, c2, c3, c4, c5, c6, c7 and 12 more"):
        data.read_csv(path, "zzz")
    assert repr(read_table(path)).endswith("1 row of c0, c1, c2, c3, c4, c5, c6, c7 and 12 more>")


def test_what_was_read_can_be_trained_on(file):
    examples = data.read_csv(file("a,b,y\n0,0,no\n1,1,yes\n"))
    first, second = data.split(examples, 0.5)
    assert len(first) == len(second) == 1
    assert len(nn.MLP(2, [2])(first.inputs[0])) == 2


# Hostile files. `tools/fuzz.py` runs the same many times over.

HOSTILE = settings(
    max_examples=200, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@HOSTILE
@given(hostile_tables())
def test_hostile_files_are_read_or_refused_with_the_place(tmp_path, content):
    table_is_read(data.read_csv, tmp_path / "f.csv", content)


def by_the_books(path):
    """As one would write it in a minute."""
    with open(path) as file:
        names, *rows = csv.reader(file)
    inputs = [[float(cell) for cell in row[:-1]] for row in rows]
    return data.CsvDataset(inputs, [float(row[-1]) for row in rows], names[:-1], names[-1])


def test_the_hostile_files_are_hostile_enough_for_a_careless_reader(tmp_path):
    @settings(HOSTILE, phases=[Phase.generate])
    @given(hostile_tables())
    def attempt(content):
        table_is_read(by_the_books, tmp_path / "f.csv", content)

    with pytest.raises((AssertionError, IndexError, csv.Error, ExceptionGroup)):
        attempt()


@pytest.mark.parametrize(
    "content", ["x" * 1001, "1," * 600, "a,b\n1," + '"' + "\n" * 1200, '"\n",' * 600], ids=lambda c: c[:6]
)
def test_a_row_is_read_only_so_far(file, monkeypatch, content):
    monkeypatch.setattr(tables, "MOST_CHARACTERS", 1000)
    with pytest.raises(ValueError, match=r"row [12]: it has more than 1,000 characters; is there a quotation mark"):
        data.read_csv(file(content + "x" * 10**6))


def test_what_follows_a_mistake_is_not_read(file, monkeypatch):
    """Python's own reader tells how far it came."""
    taken = []

    def reader(lines, **options):
        return csv.reader((taken.append(line) or line for line in lines), **options)

    monkeypatch.setattr(tables, "csv", type("csv", (), {"reader": reader, "Error": csv.Error}))
    with pytest.raises(ValueError, match="row 3: found 1 cell"):
        data.read_csv(file("a,b\n1,2\n1\n" + "1,2\n" * 1000))
    assert len(taken) == 3


def test_many_columns_are_no_more_work_each_than_few(file):
    count = 50_000  # with a search among the names for each, this would take minutes
    path = file(",".join(f"c{k}" for k in range(count)) + "\n" + ",".join("1" * count) + "\n")
    assert len(data.read_csv(path).columns) == count - 1
    assert read_table(path).numbers([f"c{k}" for k in range(count)]) == [[1.0] * count]


def test_long_names_are_shortened(file):
    long = "n" * 1000
    for content in (f"{long},{long}\n1,2\n", f"{long},b\nx,2\n1,2\n", f"{long}\n1\n"):
        with pytest.raises(ValueError, match="nnnn") as caught:
            data.read_csv(file(content))
        assert len(str(caught.value)) < 400
    with pytest.raises(ValueError, match=r"it has nnnn.*…, b$"):
        data.read_csv(file(f"{long},b\n1,2\n"), "q")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_pipes_devices_and_folders_are_refused_before_they_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", tmp_path):
        with pytest.raises(ValueError, match="is not a plain file; give the name of a CSV file"):
            data.read_csv(path)


def test_blank_rows_are_skipped_up_to_as_many_as_a_spreadsheet_has(file, monkeypatch):
    with pytest.raises(ValueError, match="row 1048577: more than 1,048,576 rows are blank; remove them"):
        data.read_csv(file("\n" * 5_000_000))
    monkeypatch.setattr(tables, "MOST_BLANK", 1000)
    assert data.read_csv(file("\n" * 1000 + "a;y\n1;2\n")).columns == ["a"]
    assert len(data.read_csv(file("a,y\n" + "1,2\n\n \n" * 300))) == 300
    assert len(data.read_csv(file("a,y\n" + "1,2\n\n" * 5000))) == 5000
    with pytest.raises(ValueError, match="row 1005: more than 1,000 rows are blank; remove them"):
        data.read_csv(file("a,y\n" + "\n" * 900 + "1,2\n" + "\n" * 4000))


def test_names_of_columns_are_escaped_in_messages(file):
    with pytest.raises(ValueError, match="has no column 'q': it has") as caught:
        data.read_csv(file("\x1b[2Ja,\x9bb\n1,2\n"), "q")
    assert str(caught.value).isprintable()
    with pytest.raises(ValueError, match=r"has no column '\\x1bxxx") as caught:
        data.read_csv(file("a,b\n1,2\n"), "\x1b" + "x" * 10_000)
    assert len(str(caught.value)) < 400


def test_a_column_that_is_used_already_is_not_what_was_meant(tmp_path):
    path = tmp_path / "flowers.csv"
    path.write_text("width1,width3,species\n1,2,rose\n")
    table = read_table(path)
    with pytest.raises(ValueError, match=r"has no column 'width2': did you mean 'width3'\?"):
        table.numbers(["width1", "width2"])
    with pytest.raises(ValueError, match="has no column 'width2': it has width1, width3, species"):
        table.numbers(["width1", "width3", "width2"])


def test_many_classes_are_counted_where_they_are_not_listed():
    names = [f"c{k}" for k in range(10)]
    shown = repr(data.CsvDataset([[1.0]], [0], ["x"], "kind", names))
    assert shown == "<CsvDataset of 1 example: x -> kind (c0, c1, c2, c3, c4, c5, c6, c7 and 2 more)>"
