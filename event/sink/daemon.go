package sink

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"

	"github.com/sharness/sharness/event"
)

// Priorities of syslog(3). Facility authpriv: who may read denied attempts is a question of security.
const (
	facilityAuthpriv = 10 << 3
	severityWarning  = 4
	severityNotice   = 5
	severityInfo     = 6
)

func severity(t event.Type) int {
	switch {
	case t.Denial(), t == event.EventsLost, t == event.LayerOpen, t == event.IntegrityChanged, t == event.StartRefused:
		return severityWarning
	case t == event.Heartbeat:
		return severityInfo
	}
	return severityNotice
}

// journal is the native protocol of systemd-journald: fields with their length in front, so that no value can begin
// a field of its own.
func journal(it item) []byte {
	e := it.event
	var b []byte
	field := func(name, value string) {
		if value == "" {
			return
		}
		b = append(append(b, name...), '\n')
		b = binary.LittleEndian.AppendUint64(b, uint64(len(value)))
		b = append(append(b, value...), '\n')
	}
	field("MESSAGE", event.Human(e))
	field("PRIORITY", strconv.Itoa(severity(e.Type)))
	field("SYSLOG_IDENTIFIER", "sharness")
	field("SYSLOG_FACILITY", strconv.Itoa(facilityAuthpriv>>3))
	field("SHARNESS_SESSION", e.Session)
	field("SHARNESS_SEQ", strconv.FormatUint(e.Seq, 10))
	field("SHARNESS_TYPE", string(e.Type))
	field("SHARNESS_DOOR", e.Door)
	field("SHARNESS_EVENT", string(it.line))
	return b
}

// syslogMax is what rsyslog takes of one message by default.
const syslogMax = 8 << 10

// syslog is the traditional form of /dev/log (RFC 3164): JSON while it fits, otherwise the line for people, cut.
func syslog(it item) []byte {
	text := string(it.line)
	if len(text) > syslogMax-128 {
		text = event.Human(it.event)
		text = text[:min(len(text), syslogMax-128)]
	}
	return fmt.Appendf(nil, "<%d>%s sharness[%d]: %s", facilityAuthpriv|severity(it.event.Type),
		it.event.Time.Local().Format("Jan _2 15:04:05"), os.Getpid(), text)
}
