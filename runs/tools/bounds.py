"""Every bound of the tools, with its reason: what is imported, sent, read back, searched."""

MIB = 1024 * 1024

# -- documents -------------------------------------------------------------------------------------------
MAX_DOCUMENT_BYTES = 16 * MIB
"""The largest published documents (GitHub, Stripe, Microsoft Graph parts) are 5 to 12 MB."""
MAX_DOCUMENT_NODES = 4_000_000
"""Values of a document with its YAML aliases expanded: 16 MB of text hold some 3 million, a bomb 10⁹."""
MAX_DOCUMENT_DEPTH = 200
"""Nesting of the document; hand-written ones stay below 40, and Python's own stack ends near 1,000."""
MAX_OPERATIONS = 20_000
"""Operations imported of one document; more than anyone would review."""
MAX_SKIPPED = 1_000
"""Skipped operations that are reported one by one; the rest is one line with their number."""
MAX_REF_CHAIN = 32
"""`$ref`s that lead to `$ref`s; real documents need two or three."""
MAX_SCHEMA_DEPTH = 60
"""Nesting of one schema between two `$ref`s; deeper ones come from generators gone wrong."""
MAX_INPUT_SCHEMA_NODES = 2_000
"""Values in a tool's input schema with its `$defs` (about 60 bytes each); beyond it the farthest definitions accept
anything. Where everything refers to everything, each tool would otherwise carry the whole document."""
MAX_OUTPUT_SCHEMA_NODES = 500
"""The same for answers, which are shown to agents but never enforced."""
FULL_SCHEMA_OPERATIONS = 1_000
"""Operations up to which each tool has those bounds; each doubling beyond halves them, so that all schemas of one
document together stay below about 150 MB."""
MIN_SCHEMA_NODES = 50
"""What is left of those bounds at the least."""
MAX_DESCRIPTION_CHARS = 2_000
"""A tool's description: an agent reads it whole, and a page of text is enough to choose by."""
MAX_SCHEMA_TEXT_CHARS = 500
"""A description, title or example inside a schema; there are hundreds in one tool."""
MAX_NAME_CHARS = 64
"""Names of tools and arguments; longer ones are cut and get a digest, so that they stay unique."""
MAX_PARAMETERS = 200
"""Parameters of one operation; more could not be called sensibly and would not fit a request line."""
FETCH_TIMEOUT_S = 30.0
"""A document's whole download: an admin waits for it in a browser."""

# -- arguments and values --------------------------------------------------------------------------------
MAX_ARGUMENTS_BYTES = 1 * MIB
"""The arguments of one call as JSON: they are stored, digested and shown to an approver."""
MAX_VALUE_DEPTH = 64
"""Nesting of arguments and results; below Python's own recursion limit by a factor of ten."""
MAX_INT_DIGITS = 4_000
"""Digits of one number: CPython refuses to read or print more than 4,300 by itself."""
MAX_VALIDATORS = 512
"""Compiled schemas kept in one process: a busy site's working set, about 20 kB each."""
MAX_ASKED_SCHEMA_BYTES = 50_000
"""A form that a person fills in; checking against it must not be work."""
MAX_SCHEMA_ERRORS = 20
"""Schema errors looked at to find the most telling one."""
MAX_SHOWN_CHARS = 80
"""Of an offending value in a message."""

# -- calls over HTTP -------------------------------------------------------------------------------------
MAX_RESPONSE_BYTES = 8 * MIB
"""Of one answer, decoded: it becomes one value in a sandbox of some hundred MB and one row in the ledger."""
MAX_ERROR_BODY_BYTES = 4 * 1024
"""Of an error's body: enough for any problem document, and it is stored and shown whole."""
MAX_URL_BYTES = 8 * 1024
"""Common servers refuse request lines above 8 kB; refusing first keeps the reason known."""
MAX_REDIRECTS = 3
"""Hops of a read call or a document's download: http→https→www→path is the longest honest chain."""
CONNECT_TIMEOUT_S = 10.0
"""TCP and TLS to one upstream; nothing has been sent meanwhile, so giving up early is free of doubt."""
RESOLVE_TIMEOUT_S = 5.0
"""One name look-up: the resolver's own default of two tries."""
RESOLVE_THREADS = 8
"""Look-ups at once; a hanging resolver must not use up the process's common threads."""
MAX_ADDRESSES = 4
"""Addresses of one name that are tried one after the other."""
MAX_CONNECTIONS = 200
"""Sockets of one process to all upstreams; well below the usual 1,024 descriptors."""
MAX_IDLE_CONNECTIONS = 50
"""Idle sockets kept for reading calls."""
READ_KEEPALIVE_S = 15.0
"""Idle time of a connection used for reads, which are repeated once where the server closed it meanwhile."""
EFFECT_KEEPALIVE_S = 1.0
"""Idle time of a connection used for effects. Servers close idle ones after 2 s (gunicorn) to 75 s; reusing
only younger ones keeps "closed while we wrote" (an unknown outcome, for an effect) out of ordinary life."""
READ_CHUNK_BYTES = 64 * 1024
"""Decoded bytes taken at a time: a compressed bomb never unfolds further than one piece past the bound."""
MAX_LOCATION_CHARS = 500
"""Of a redirect's target in a message."""

# -- Python functions ------------------------------------------------------------------------------------
PYTHON_THREADS = 8
"""Synchronous functions running at once in one process; later calls wait within their own deadline."""
MAX_PYTHON_RESULT_BYTES = MAX_RESPONSE_BYTES
"""A function's result is handed on the same way as an answer over HTTP."""

# -- search and policies ---------------------------------------------------------------------------------
MAX_QUERY_CHARS = 400
"""Of a search: a sentence or two."""
MAX_QUERY_WORDS = 12
"""Distinct words of a search that count; each costs one walk over its postings."""
MAX_EXPANSIONS = 24
"""Indexed words that one searched word may stand for by prefix or by a typing error."""
MAX_SEARCH_LIMIT = 100
"""Hits on one page."""
MAX_NEAR_CANDIDATES = 60
"""Addresses compared letter by letter to find near ones."""
MAX_INDEXED_CHARS = 1_000
"""Of a description that are indexed; the rest repeats itself."""
MAX_PATTERN_CHARS = 200
"""Of a policy's pattern: two names and a dot are at most 129."""
