"""Grades for the eye."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from farandole_tools.lab.grading import Grade
from farandole_tools.lab.labs import Lab

PRINTED_LINES = 20


def show(lab: Lab, grade: Grade) -> None:
    """One submission: each check, what is wrong, and what the code printed where it went wrong."""
    table = Table(title=f"Lab {lab.number}, {lab.title}", box=box.SIMPLE, title_justify="left")
    table.add_column("")
    table.add_column("check")
    table.add_column("points", justify="right", no_wrap=True)
    table.add_column("what is wrong")
    before = ""
    for result in grade.results:
        mark = "[green]✓[/]" if result.passed else "[red]✗[/]"
        points = f"{result.points} of {result.max_points}"
        message = "as above" if result.message and result.message == before else result.message
        before = result.message
        table.add_row(mark, result.name, points, escape(printable(message)))
    console = Console(highlight=False)
    console.print(table)
    if shown := next((result for result in grade.results if result.printed), None):
        lines = shown.printed.splitlines()
        print(f"What the code printed in {shown.name}:")
        for line in lines[:PRINTED_LINES]:
            print(f"    {printable(line)}")
        if len(lines) > PRINTED_LINES:
            print(f"    … and {len(lines) - PRINTED_LINES:,} more lines")
    print(f"{grade.points} of {grade.max_points} points: {grade.submission}")


def show_all(lab: Lab, grades: list[Grade]) -> None:
    """One line for each submission: its points, and the first thing that is wrong."""
    table = Table(title=f"Lab {lab.number}, {lab.title}", box=box.SIMPLE, title_justify="left")
    table.add_column("submission")
    table.add_column("points", justify="right", no_wrap=True)
    table.add_column("failed")
    table.add_column("the first of it")
    for grade in grades:
        failed = [result for result in grade.results if not result.passed]
        names = ", ".join(result.name for result in failed)
        first = escape(printable(failed[0].message)) if failed else ""
        name = escape(printable(grade.submission))
        table.add_row(name, f"{grade.points} of {grade.max_points}", names, first)
    Console(highlight=False).print(table)
    full = sum(grade.full_marks for grade in grades)
    print(f"{len(grades)} submissions, {full} with full marks")


def shown(text: str) -> str:
    """Text of a submission for a table: it can command neither the terminal nor the table's layout."""
    return escape(printable(text))


def printable(text: str) -> str:
    """Text of a submission without what could command the terminal."""
    return "".join(letter if letter.isprintable() else "�" for letter in text.replace("\t", "    "))
