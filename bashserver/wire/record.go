package wire

import "encoding/binary"

// MaxRecordFDs is the most descriptors that any record carries.
const MaxRecordFDs = 4

// recordFDs says how many descriptors may travel beside a record of type t.
func recordFDs(t RecordType) (low, high int, ok bool) {
	switch t {
	case RecConn:
		return 1, 1, true
	case RecStarted:
		return 0, 1, true // a terminal's master
	case RecStart:
		return 1, 4, true // the memfd alone for a terminal
	case RecRefused, RecEnded, RecHint, RecSignal, RecKill, RecDone, RecTaken:
		return 0, 0, true
	}
	return 0, 0, false
}

// Encode gives the RecordBytes bytes of r.
func (r Record) Encode() [RecordBytes]byte {
	var b [RecordBytes]byte
	for i, v := range []uint64{uint64(r.Type), r.ID, r.A, r.B, r.C, 0} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	return b
}

// DecodeRecord reads what Encode wrote. Its errors wrap ErrProtocol.
func DecodeRecord(b []byte) (Record, error) {
	if len(b) != RecordBytes {
		return Record{}, protocolError("record of %d bytes", len(b))
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	t := word(0)
	if t > 1<<32-1 || word(5) != 0 {
		return Record{}, protocolError("reserved bits of a record are not zero")
	}
	if _, _, ok := recordFDs(RecordType(t)); !ok {
		return Record{}, protocolError("unknown record type %d", t)
	}
	return Record{Type: RecordType(t), ID: word(1), A: word(2), B: word(3), C: word(4)}, nil
}
