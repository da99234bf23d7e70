"""Commands on the course: `learn`."""

from __future__ import annotations

import webbrowser

import click

from chainrule.cli.console import Command, input_errors


@click.command(cls=Command)
@click.option("--lessons", metavar="DIR", help="A folder with lessons of your own, in place of chainrule's.")
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="The port to serve on; a free one if left out.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def learn(lessons: str | None, port: int, no_browser: bool) -> None:
    """The course in your browser: build an autograd engine yourself. Works without a network.

    Serves to this computer only, until Ctrl-C.
    """
    from chainrule.learn.server import ADDRESS, make_server

    with input_errors():
        server = make_server(lessons, port)
    address = f"http://{ADDRESS}:{server.server_port}/"
    with server:
        opened = not no_browser and webbrowser.open(address)
        click.echo(address)
        click.echo(
            "Ctrl-C ends it." if opened or no_browser else "Open this address in a browser. Ctrl-C ends it.", err=True
        )
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo("", err=True)
