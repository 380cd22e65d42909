package relay

import (
	"errors"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/sharness/sharness/event"
)

// reportWindow is how often one kind of event may be sent for one endpoint: a client that retries in a loop must not
// drown the log. What happened in between is counted in the next event of the kind, or in the last one.
const reportWindow = 10 * time.Second

// reporter sends the relay's events. Events that the socket does not take at once are counted, never waited for.
type reporter struct {
	config Config
	events net.Conn
	window time.Duration

	mu   sync.Mutex
	kind map[kind]*pending
	lost uint64
}

type kind struct {
	endpoint int
	name     string // of what is learned, many share a listener
	of       string
}

type pending struct {
	event event.Event // the newest one held back
	count uint64
	timer *time.Timer
}

func newReporter(config Config, events net.Conn, window time.Duration) *reporter {
	return &reporter{config: config, events: events, window: window, kind: map[kind]*pending{}}
}

// denied reports a connection the relay refused. asked is the client's and may hold any bytes.
func (r *reporter) denied(i int, e Endpoint, door, reason, asked string) {
	ev := r.event(e, event.NetDenied)
	ev.Door, ev.Errno, ev.Syscall = door, "EACCES", "connect"
	ev.Cause, ev.CauseSource, ev.Detail = "relay", "observed", reason
	if asked != "" {
		ev.Target.Asked, ev.Target.Truncated = printable(asked)
		ev.Target.Source = "client_hello"
	}
	ev.Hint = &event.Hint{
		Person: "add the name under connect: in the manifest if this endpoint should be reachable",
		Model:  "will not change on retry; only the endpoints of the manifest can be reached",
	}
	r.send(kind{i, e.Name, door}, ev)
}

// upstream reports that an allowed endpoint could not be reached. It is not a denial: it has no door.
func (r *reporter) upstream(i int, e Endpoint, err error) {
	ev := r.event(e, event.NetFailed)
	ev.Errno, ev.Syscall, ev.Cause, ev.CauseSource = errnoName(err), "connect", "upstream", "observed"
	ev.Detail, _ = printable(err.Error())
	r.send(kind{i, e.Name, "upstream"}, ev)
}

func (r *reporter) limit(i int, what string, max int) {
	ev := r.event(r.config.Endpoints[i], event.LimitHit)
	ev.Cause, ev.CauseSource = "relay", "observed"
	ev.Detail = what + ": at most " + strconv.Itoa(max)
	r.send(kind{i, "", "limit"}, ev)
}

func (r *reporter) event(e Endpoint, t event.Type) event.Event {
	return event.Event{
		Schema: event.Schema, Time: time.Now().UTC(), Session: r.config.Session, Type: t, Count: 1,
		Target: &event.Target{Resolved: net.JoinHostPort(e.Name, strconv.Itoa(int(e.Port)))},
	}
}

func (r *reporter) send(k kind, ev event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.kind[k]; p != nil {
		p.event = ev
		p.count++
		return
	}
	p := &pending{}
	p.timer = time.AfterFunc(r.window, func() { r.flush(k, p) })
	r.kind[k] = p
	r.write(ev)
}

// flush ends a window: what it held back is sent, and begins the next one.
func (r *reporter) flush(k kind, p *pending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kind[k] != p {
		return
	}
	if p.count == 0 {
		delete(r.kind, k)
		return
	}
	p.event.Count = p.count
	r.write(p.event)
	p.count = 0
	p.timer.Reset(r.window)
}

// close sends what is held back, and the counters of every endpoint.
func (r *reporter) close(s *server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, p := range r.kind {
		p.timer.Stop()
		if p.count > 0 {
			p.event.Count = p.count
			r.write(p.event)
		}
		delete(r.kind, k)
	}
	for i, e := range r.config.Endpoints {
		ev := r.event(e, event.Heartbeat)
		ev.Detail, ev.Data, ev.Count = "relay ended", s.data(i), 0
		r.write(ev)
	}
	if r.lost > 0 {
		r.write(event.Event{Schema: event.Schema, Time: time.Now().UTC(), Session: r.config.Session,
			Type: event.EventsLost, Count: r.lost, Detail: "relay: the event socket was full"})
	}
}

func (r *reporter) write(ev event.Event) {
	if r.events == nil {
		return
	}
	data, err := event.Encode(&ev)
	if err == nil {
		// A sink that does not read must not stop the relay.
		r.events.SetWriteDeadline(time.Now().Add(time.Millisecond))
		_, err = r.events.Write(data)
	}
	if err != nil {
		r.lost++
	}
}

// printable quotes what a client sent when it is more than a plain name, and bounds it.
func printable(s string) (text string, truncated bool) {
	const maxText = 512
	if len(s) > maxText {
		s, truncated = s[:maxText], true
	}
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' {
			return strconv.QuoteToASCII(s), truncated
		}
	}
	return s, truncated
}

func errnoName(err error) string {
	names := map[syscall.Errno]string{
		syscall.ECONNREFUSED: "ECONNREFUSED", syscall.ENETUNREACH: "ENETUNREACH", syscall.EHOSTUNREACH: "EHOSTUNREACH",
		syscall.ETIMEDOUT: "ETIMEDOUT", syscall.ECONNRESET: "ECONNRESET", syscall.EACCES: "EACCES",
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return names[errno]
	}
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		return "ETIMEDOUT"
	}
	return ""
}
