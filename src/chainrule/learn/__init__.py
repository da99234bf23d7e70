"""The course: lessons as files, graders that run natively and in a web page, and the learner's own graph as data.

`course` defines a course and `lesson_files` reads one; `grading` grades a learner's code, `graphs` describes the graph
that it built, and `submissions` grades files in separate processes. Nothing here needs another package.
"""
