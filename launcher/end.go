package launcher

import (
	"errors"
	"fmt"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/event/sink"
	"github.com/sharness/sharness/launcher/pin"
)

// closeSinks lets go of the sinks on our side.
func (r *run) closeSinks() {
	for _, o := range r.opened {
		o.File.Close()
	}
	r.opened = nil
}

// close ends everything in the opposite order of start, and returns the first thing that could not be ended.
func (r *run) close() error {
	var errs []error
	if r.pulse != nil {
		r.pulse.end()
	}
	if r.server != nil {
		errs = append(errs, r.server.close(), r.server.retired.finish())
	}
	if r.bashd != nil {
		r.bashd.stop()
	}
	if r.relay != nil {
		r.relay.stop()
	}
	if err := r.naming.named(); err != nil {
		r.o.Notice("what was learned of names could not be read: " + err.Error())
	}
	if r.netns != nil {
		r.netns.Close()
	}
	if r.budget != nil {
		errs = append(errs, r.budget.close()...)
	}
	if r.group != nil {
		errs = append(errs, r.group.kill(), r.group.delete())
	}
	if r.watcher != nil {
		// No process of the session is left that could make a protected name.
		errs = append(errs, r.watcher.finish())
		for _, line := range r.watcher.summary() {
			r.o.Notice(line)
		}
	}
	r.reportChanges()
	if r.sink != nil {
		r.events.Send(event.Event{Type: event.SessionEnd})
		if err := r.sink.finish(); err != nil {
			r.o.Notice(err.Error())
		}
		if r.sink.refused.Load() && r.s.proof == nil && r.s.learn == nil {
			r.o.Notice("programs were refused to start; which, and what to do about each: " + r.whereToRead("exec.denied"))
		}
	}
	r.closeSinks()
	if !r.opening {
		r.s.Close()
		return errors.Join(errs...)
	}
	unlock, err := lockHost(nil)
	errs = append(errs, err)
	if r.helpers != nil {
		errs = append(errs, r.helpers.kill(), r.helpers.delete())
	}
	if r.parent != nil {
		errs = append(errs, r.parent.delete())
	}
	for _, f := range r.occupied {
		f.Close()
	}
	locked := err == nil // else what others may be using just now stays, for gc
	if r.s.proof != nil && locked {
		errs = append(errs, r.s.proof.forget(r))
	}
	r.s.Close()
	if locked {
		removeEmpty()
	}
	unlock()
	return errors.Join(errs...)
}

// whereToRead is the command that shows events of a type, or where they were written.
func (r *run) whereToRead(typ event.Type) string {
	for _, o := range r.opened {
		switch {
		case o.Spec == DefaultSink(r.s.Manifest.Name):
			return fmt.Sprintf("sudo sharness events --type %s %s", typ, r.s.ID)
		case o.Spec.Kind == sink.File:
			return fmt.Sprintf("sharness events --type %s %s", typ, pin.Quote(o.Spec.Path))
		}
	}
	return fmt.Sprintf("the events of type %s above, or where --events sent them", typ)
}

// reportChanges says what is not as it was: files under integrity, and the state files that the manifest names.
func (r *run) reportChanges() {
	if r.before == nil {
		return
	}
	for _, err := range r.s.checkIntegrity() {
		r.o.Notice(err.Error())
		r.events.Send(event.Event{Type: event.IntegrityChanged, Detail: err.Error()})
	}
	for _, line := range r.before.changes(r.s) {
		r.o.Notice(line)
	}
}
