"""The agent's server for reports of training, on a Unix socket for the job's user alone.

Does: ``POST /training`` accepts a HookReport (409 for one of another generation), ``GET /health``
returns the observed state.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler

from reshape_sidecar import codec, limits
from reshape_sidecar.contract import HookReport
from reshape_sidecar.init import files
from reshape_sidecar.user import User
from reshape_sidecar.wire import Observed

Take = Callable[[HookReport], bool]


class TrainingHandler(RequestHandler):
    """Reports of the training process."""

    def initialize(self, accept: Take) -> None:
        self._accept = accept

    def post(self) -> None:
        try:
            report = codec.loads(HookReport, self.request.body)
        except codec.CodecError as error:
            self.set_status(HTTPStatus.BAD_REQUEST)
            self.finish({"code": "bad-report", "message": error.message, "path": error.path})
            return
        accepted = self._accept(report)
        self.set_status(HTTPStatus.NO_CONTENT if accepted else HTTPStatus.CONFLICT)


class HealthHandler(RequestHandler):
    """The newest observed state."""

    def initialize(self, observe: Callable[[], Observed]) -> None:
        self._observe = observe

    def get(self) -> None:
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(codec.to_value(self._observe())))


def serve(
    path: Path, accept: Take, observe: Callable[[], Observed], user: User | None = None
) -> HTTPServer:
    """Start the server at ``path``; needs a running event loop. Raises OSError.

    ``user``: runs training; None: the user of this process.
    """
    application = Application(
        [
            (r"/training", TrainingHandler, {"accept": accept}),
            (r"/health", HealthHandler, {"observe": observe}),
        ],
        log_function=lambda handler: None,
    )
    server = HTTPServer(application, max_body_size=limits.REPORT_BYTES_MAX)
    server.add_socket(files.listen(path, user))
    return server
