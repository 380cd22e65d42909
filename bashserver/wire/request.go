package wire

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// Request is what a client asks for, as it arrived: checked for size, order and NULs, not yet decided on.
type Request struct {
	Execfn string // never empty; may be relative to Cwd
	Exe    string // may be empty
	Cwd    string // absolute
	Argv   []string
	Env    []string
}

// Assembler builds a Request from frames. The zero value is ready. After an error it must not be used again.
type Assembler struct {
	req   Request
	last  FrameType
	bytes int
	done  bool
}

// Bytes is how much payload the request holds so far.
func (a *Assembler) Bytes() int { return a.bytes }

// follows is the order of a request: which frames may come after which.
var follows = map[FrameType][]FrameType{
	0:      {Hello},
	Hello:  {Execfn},
	Execfn: {Exe, Cwd},
	Exe:    {Cwd},
	Cwd:    {Arg},
	Arg:    {Arg, EnvVar, Start},
	EnvVar: {EnvVar, Start},
}

// Add takes the next frame. done is true when it was Start.
func (a *Assembler) Add(f Frame) (done bool, err error) {
	if a.done {
		return false, protocolError("frame %d after start", f.Type)
	}
	if !slices.Contains(follows[a.last], f.Type) {
		return false, protocolError("frame %d after frame %d", f.Type, a.last)
	}
	if bytes.IndexByte(f.Payload, 0) >= 0 && f.Type != Hello {
		return false, protocolError("NUL inside frame %d", f.Type)
	}
	if a.bytes += len(f.Payload); a.bytes > MaxRequest {
		return false, protocolError("request of more than %d bytes", MaxRequest)
	}
	a.last = f.Type
	if err := a.take(f); err != nil {
		return false, err
	}
	return a.done, nil
}

func (a *Assembler) take(f Frame) error {
	switch f.Type {
	case Hello:
		if v := binary.LittleEndian.Uint16(f.Payload); v != Version {
			return protocolError("version %d, this server speaks %d", v, Version)
		}
	case Execfn:
		a.req.Execfn = string(f.Payload)
	case Exe:
		a.req.Exe = string(f.Payload)
	case Cwd:
		if f.Payload[0] != '/' {
			return protocolError("working directory is not absolute")
		}
		a.req.Cwd = string(f.Payload)
	case Arg:
		if len(a.req.Argv) == MaxArgs {
			return protocolError("more than %d arguments", MaxArgs)
		}
		a.req.Argv = append(a.req.Argv, string(f.Payload))
	case EnvVar:
		if len(a.req.Env) == MaxEnv {
			return protocolError("more than %d environment variables", MaxEnv)
		}
		a.req.Env = append(a.req.Env, string(f.Payload))
	case Start:
		a.done = true
	}
	return nil
}

// Request returns the finished request; call it after Add said done.
func (a *Assembler) Request() Request { return a.req }
