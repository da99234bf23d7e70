"""The course: lessons as files, graders that run natively and in a web page, and the learner's own graph as data.

`course` is what a course is and `lesson_files` reads one; `grading` runs a learner's code against it, `graphs`
describes what that built, and `submissions` grades files in a process of its own. Nothing here needs another package.
"""
