"""`drive`: calls `run` again and again, before returning to Python.

Before each run, one row of each input matrix is copied into memory; after it, one row of results is copied out, and an
array is added, in doubles, to the row of sums of the present section. A matrix is given by its address, its width, and
the place in memory that its rows go to or come from.
"""

from __future__ import annotations

from string import Template

from chainrule.compiler.backends.llvm.text import DOUBLE, LINE, Element

MATRICES = ("in1", "in2", "out")
ARGUMENTS = ", ".join(f"ptr %{name}, i64 %width.{name}, i64 %place.{name}" for name in (*MATRICES, "sums"))
PLACE = Template("""  %bytes.$name = mul i64 %width.$name, $bytes
  %memory.$name = getelementptr $number, ptr %memory, i64 %place.$name
""")
ROW = Template("""  %offset.$name = mul i64 %time, %bytes.$name
  %row.$name = getelementptr i8, ptr %$name, i64 %offset.$name
  call void @llvm.memcpy.p0.p0.i64(ptr $target, ptr $source, i64 %bytes.$name, i1 false)
""")
DRIVE = Template("""
define void @drive(ptr %memory, i64 %count, $arguments, i64 %section) {
entry:
$places
  br label %test
test:
  %time = phi i64 [ 0, %entry ], [ %next, %turn ]
  %more = icmp slt i64 %time, %count
  br i1 %more, label %turn, label %end
turn:
$fill
  call void @run(ptr %memory)
$drain
  %number.section = udiv i64 %time, %section
  %offset.sums = mul i64 %number.section, %width.sums
  %row.sums = getelementptr double, ptr %sums, i64 %offset.sums
  call void @add(ptr %row.sums, ptr %memory.sums, i64 %width.sums)
  %next = add i64 %time, 1
  br label %test
end:
  ret void
}

define internal void @add(ptr noalias %sums, ptr noalias %numbers, i64 %count) #0 {
entry:
  br label %test
test:
  %k = phi i64 [ 0, %entry ], [ %next, %turn ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %turn, label %end
turn:
  %from = getelementptr $number, ptr %numbers, i64 %k
  %to = getelementptr double, ptr %sums, i64 %k
  %given = load <$line x $number>, ptr %from, align $bytes
$widen
  %before = load <$line x double>, ptr %to, align 8
  %after = fadd <$line x double> %before, $wide
  store <$line x double> %after, ptr %to, align 8
  %next = add i64 %k, $line
  br label %test
end:
  ret void
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
""")


def drive(element: Element) -> str:
    """The text of `drive`, in a module that has `run`."""

    def row(name: str) -> str:
        ends = [f"%memory.{name}", f"%row.{name}"]
        target, source = ends if name.startswith("in") else reversed(ends)
        return ROW.substitute(name=name, target=target, source=source)

    names, line = (*MATRICES, "sums"), LINE // element.bytes
    return DRIVE.substitute(
        arguments=ARGUMENTS,
        places="".join(PLACE.substitute(name=n, bytes=element.bytes, number=element.name) for n in names),
        fill="".join(row(name) for name in MATRICES[:2]),
        drain=row("out"),
        number=element.name,
        bytes=element.bytes,
        line=line,
        widen="" if element is DOUBLE else f"  %wide = fpext <{line} x {element.name}> %given to <{line} x double>",
        wide="%given" if element is DOUBLE else "%wide",
    )
