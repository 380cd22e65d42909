package launcher

import "fmt"

// What follows when a helper process has died so often that it is not started again.

// fail ends the session: without this helper a door would stand open.
func (r *run) fail(err error) {
	r.failing.Do(func() {
		r.why = err
		close(r.failed)
	})
	if d := r.orchestrator.Load(); d != nil {
		d.kill()
	}
}

// failure is why the session could not go on, or nil.
func (r *run) failure() error {
	select {
	case <-r.failed:
		return r.why
	default:
		return nil
	}
}

// closed tells the person: without this helper something is missing inside, and nothing stands open.
func (r *run) closed(err error) { r.o.Notice(fmt.Sprintf("%v; what it served stays closed", err)) }

// unlogged tells the person, since the log cannot. Nothing that is enforced depends on the log.
func (r *run) unlogged(err error) { r.o.Notice(fmt.Sprintf("%v; events are no longer written", err)) }
