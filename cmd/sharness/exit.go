package main

// exitError carries the exit status that an error stands for: 125 sharness failed, 126 it refused to start, 127 the
// command was not found, or what a subcommand documents. err may be nil when everything was said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }
