"""The course: lessons as files, graders that run natively and in a web page, and the learner's own graph as data.

`course` reads the lesson files, `grading` runs a learner's code against them, `graphs` describes what it built, and
`submissions` grades files in a process of its own. Nothing here needs another package.
"""
