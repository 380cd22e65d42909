// Package agentstest runs real coding agents under `sharness enforce`, with a scripted model service for a model, and
// asserts on what each tool call reported back. It promises that the profiles fit the agents they are made for.
//
// Its tests have the build tag "agents" and need root, bin/sharness and the agents' npm packages below
// $SHARNESS_AGENTS (default /var/cache/sharness-agents); `make test-agents` installs them there. What an orchestrator
// can try with code of its own is not tested here: an agent only does what its tools let a model do.
package agentstest
