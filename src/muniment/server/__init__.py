"""The HTTP/1.1 server: connections, requests in their order, and the processes that serve them."""
