"""What can be wrong with a source's document: one exception, with a code of the error registry."""


class DocumentError(Exception):
    """A document cannot be fetched, read or used; `where` points into it (a JSON pointer or an address).

    Codes: `spec_invalid`, `spec_too_large`, `spec_unsupported`, `spec_unreachable`, `address_refused`.
    """

    def __init__(self, code: str, message: str, where: str = "") -> None:
        super().__init__(f"{message} (at {where})" if where else message)
        self.code = code
        self.message = message
        self.where = where
