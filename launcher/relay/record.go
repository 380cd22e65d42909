package relay

import (
	"encoding/binary"
	"io"
)

// maxHelloBytes bounds what is read of a ClientHello, record headers included. Hellos with post-quantum key shares are
// about 2 KiB; the rest is room for resumption tickets.
const maxHelloBytes = 16 << 10

// Record types, RFC 8446 §5.1.
const (
	recordChangeCipherSpec = 20
	recordAlert            = 21
	recordHandshake        = 22

	recordHeader = 5
	// maxRecordBytes is the longest payload any TLS version sends (TLS 1.2 ciphertext, RFC 5246 §6.2.3).
	maxRecordBytes = 1<<14 + 2048

	handshakeHeader      = 4
	handshakeClientHello = 1
)

// readHello reads one ClientHello, however it is cut into records and segments, and not one byte more. It returns the
// bytes as they came, to be passed on, and the body. first holds what the caller has already read: nothing, or whole
// records.
func readHello(r io.Reader, first []byte) (raw, body []byte, err error) {
	raw = first
	var message []byte
	for rest := first; len(rest) > 0; {
		n := recordHeader + int(binary.BigEndian.Uint16(rest[3:]))
		message = append(message, rest[recordHeader:n]...)
		rest = rest[n:]
	}
	for {
		if len(message) > 0 && message[0] != handshakeClientHello {
			return raw, nil, &refusal{alert: alertUnexpectedMessage, reason: "not a ClientHello"}
		}
		if len(message) >= handshakeHeader {
			want := handshakeHeader + (int(message[1])<<16 | int(message[2])<<8 | int(message[3]))
			if want > maxHelloBytes {
				return raw, nil, &refusal{alert: alertDecodeError, reason: "longer than 16 KiB"}
			}
			if len(message) > want {
				return raw, nil, &refusal{alert: alertUnexpectedMessage, reason: "bytes after the hello in its record"}
			}
			if len(message) == want {
				return raw, message[handshakeHeader:], nil
			}
		}
		record, err := readHelloRecord(r, maxHelloBytes-len(raw))
		if err != nil {
			return raw, nil, err
		}
		raw = append(raw, record...)
		message = append(message, record[recordHeader:]...)
	}
}

// readHelloRecord reads one handshake record of at most room bytes, header included.
func readHelloRecord(r io.Reader, room int) ([]byte, error) {
	header := make([]byte, recordHeader)
	// The type comes first and alone decides about plain HTTP and the like, whose first line may be shorter than a
	// record header.
	if _, err := io.ReadFull(r, header[:1]); err != nil {
		return nil, err
	}
	if header[0] != recordHandshake {
		return nil, &refusal{alert: alertNone, reason: "not TLS"}
	}
	if _, err := io.ReadFull(r, header[1:]); err != nil {
		return nil, err
	}
	if header[1] != 3 {
		return nil, &refusal{alert: alertNone, reason: "not TLS"}
	}
	n := int(binary.BigEndian.Uint16(header[3:]))
	if n == 0 {
		// RFC 8446 §5.1 forbids empty handshake records; they would also make the loop endless work for free.
		return nil, &refusal{alert: alertUnexpectedMessage, reason: "empty handshake record"}
	}
	if recordHeader+n > room {
		return nil, &refusal{alert: alertDecodeError, reason: "longer than 16 KiB"}
	}
	record := append(header, make([]byte, n)...)
	_, err := io.ReadFull(r, record[recordHeader:])
	return record, err
}

// relaySecondHello passes the client's records on until no second ClientHello can follow, and holds such a hello to the
// same name. A server that answers HelloRetryRequest gets a whole new ClientHello in the clear (RFC 8446 §4.1.2), and
// not every server checks that it names the same host. Alerts and ChangeCipherSpec may come before it; any other record
// means that the handshake has gone on. A nil error means that the rest of the stream may be passed unread.
func relaySecondHello(r io.Reader, w io.Writer, check func(body []byte) error) error {
	for {
		header := make([]byte, recordHeader)
		if _, err := io.ReadFull(r, header); err != nil {
			return err
		}
		n := int(binary.BigEndian.Uint16(header[3:]))
		if header[1] != 3 || n > maxRecordBytes {
			return &refusal{alert: alertUnexpectedMessage, reason: "not a TLS record"}
		}
		record := append(header, make([]byte, n)...)
		if _, err := io.ReadFull(r, record[recordHeader:]); err != nil {
			return err
		}
		switch {
		case record[0] == recordAlert || record[0] == recordChangeCipherSpec:
		case record[0] != recordHandshake:
			_, err := w.Write(record)
			return err
		case n == 0:
			return &refusal{alert: alertUnexpectedMessage, reason: "empty handshake record"}
		case record[recordHeader] != handshakeClientHello:
			_, err := w.Write(record)
			return err
		default:
			raw, body, err := readHello(r, record)
			if err != nil {
				return err
			}
			if err := check(body); err != nil {
				return err
			}
			record = raw
		}
		if _, err := w.Write(record); err != nil {
			return err
		}
	}
}
