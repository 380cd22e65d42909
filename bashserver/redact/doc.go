// Package redact takes secrets out of a stream of bytes while it flows: values that are known, in plain and in the forms
// that tools print them in, and what has the shape of a token. It says how many it found, by name, and never what.
//
// It promises that no named form of a value passes, wherever the stream is cut, and that everything else passes
// unchanged and in order, with a delay that Patience bounds unless a value has begun. It does not know a value that was
// compressed, encrypted or spelled out, nor a token that is split over two streams; it stops accidents and nobody who
// means to. It has no files and no privilege. docs/secrets.md says what it finds; here is how:
//
//   - table looks at every place of the text and knows by three bytes whether something may begin there.
//   - A form compares the text with a value, however it was escaped. A machine, made of a rule's pattern while it runs,
//     reads on until no match can come about, or one has; only then does Go's regexp say where the secret is.
//   - What may become a secret is held back; Filter keeps book of it.
package redact

//go:generate go run ./rules
