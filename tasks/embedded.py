"""The process of a command's own server: Prefect's, without UI, at the port that is its argument.

Its start is imports. They make much and drop nothing, so the garbage collector waits until they are done, which saves a
sixth of the time.
"""

from __future__ import annotations

import gc
import sys


def main(port: int) -> None:
    """Serves until it is told to end."""
    gc.disable()
    import uvicorn
    from prefect.server.api.server import create_app

    app = create_app()
    gc.freeze()  # what was imported is never looked at again
    gc.enable()
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", lifespan="on")


if __name__ == "__main__":
    main(int(sys.argv[1]))
