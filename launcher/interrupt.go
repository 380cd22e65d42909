package launcher

import (
	"os"
	"os/signal"
	"syscall"
)

// interrupts keeps signals that are meant for the orchestrator from ending the supervisor while there is none: before
// it runs they end the start, with everything put away, and after its end the teardown goes on.
type interrupts struct {
	c chan os.Signal
}

func catchInterrupts() *interrupts {
	in := &interrupts{c: make(chan os.Signal, 16)}
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(sig) { // nohup(1)
			signal.Notify(in.c, sig)
		}
	}
	return in
}

func (in *interrupts) stop() { signal.Stop(in.c) }

// interrupted is the error of a start that a signal ended.
type interrupted struct{ sig syscall.Signal }

func (i *interrupted) Error() string { return "ended by signal " + i.sig.String() }

// check returns an *interrupted once a signal has come.
func (in *interrupts) check() error {
	select {
	case sig := <-in.c:
		return &interrupted{sig.(syscall.Signal)}
	default:
		return nil
	}
}

// forward passes on what has come by now; from here on the terminal's side catches signals.
func (in *interrupts) forward(to func(sig int)) {
	for {
		select {
		case sig := <-in.c:
			to(int(sig.(syscall.Signal)))
		default:
			return
		}
	}
}
