package tty

import (
	"bytes"
	"io"
	"time"
)

const (
	// statusQuery asks the terminal for its status (DSR), after ending a string sequence that may have been cut off.
	// Every terminal in use answers it, and answers in the order of the questions.
	statusQuery  = "\x1b\\\x1b[5n"
	statusAnswer = "\x1b[0n"

	settleTimeout = 500 * time.Millisecond
	settleQuiet   = 50 * time.Millisecond
)

// release puts the terminal back for the user's shell; input and output must be paused. Restore throws away what has arrived;
// but the answer to a query that the domain has just made is still on its way, and its text can be the domain's choice
// (a window title, for one). So after output with an escape sequence the terminal is asked something itself, and what
// it says until it has answered is thrown away too. A terminal that takes longer than settleTimeout is not waited for.
func (p *Proxy) release() error {
	t := p.Streams.Terminal
	if p.output.takeEscape() && t.Foreground() {
		// Also when it was never ours to read: in cooked mode the answers would be shown, and wait for the shell.
		if err := t.Raw(RawInput); err != nil {
			return err
		}
		t.settle()
	}
	return t.Restore()
}

// settle reads until the terminal has answered and has then been quiet for a moment: the domain may have asked for the
// same status before.
func (t *Terminal) settle() {
	end := time.Now().Add(settleTimeout)
	if _, err := io.WriteString(t.file, statusQuery); err != nil {
		return
	}
	var tail []byte
	buf := make([]byte, 4096)
	answered := false
	for {
		deadline := end
		if quiet := time.Now().Add(settleQuiet); answered && quiet.Before(end) {
			deadline = quiet
		}
		t.file.SetReadDeadline(deadline)
		n, err := t.file.Read(buf)
		if err != nil {
			return
		}
		tail = append(tail, buf[:n]...)
		answered = answered || bytes.Contains(tail, []byte(statusAnswer))
		tail = tail[max(0, len(tail)-len(statusAnswer)+1):]
	}
}
