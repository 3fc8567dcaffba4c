"""The HTTP/1.1 server: connections, pipelined requests, and the processes that serve them."""
