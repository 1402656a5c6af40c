"""The control plane and the operations listener: for the operator on this host, never for containers.

app         the routes of the admin socket, and of its TCP form with an admin token
minting     a mint request, strictly read, as a grant
enrolling   a request for an enrolment, strictly read
registering what a task's patient or judge may be told, strictly read
states      what is told about a token
replies     refusals as responses, and no banner
operations  metrics, health and readiness, without credential
"""
