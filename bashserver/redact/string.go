package redact

import "bytes"

// String is s without its secrets. cut says that there was more of it: what could be the beginning of a secret at its end is
// left away then, because the rest, by which it would be known, is not there.
func (s *Set) String(text string, cut bool) string {
	if len(s.names) == 0 || text == "" {
		return text
	}
	var out bytes.Buffer
	f := s.Filter(&out)
	_, _ = f.Write([]byte(text)) // a buffer takes everything
	if !cut {
		_ = f.Close()
	}
	return out.String()
}
