package manifest

import (
	"bytes"
	"errors"
	"io"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// Parse reads one document. It is strict: every key is known and written once, every value has the type and unit the
// key demands, and nothing follows the document. An error is an *Error and reads "name:line:column: key: found …,
// expected …". Parse does not fill in defaults: see WithDefaults.
func Parse(name string, data []byte) (*Manifest, error) {
	m := new(Manifest)
	if _, err := parse(name, data, m, m.Validate); err != nil {
		return nil, err
	}
	return m, nil
}

// parse decodes data into out and places the error of check, which sees only the decoded value.
func parse(name string, data []byte, out any, check func() error) (*decoder, error) {
	if err := checkText(name, data); err != nil {
		return nil, err
	}
	root, err := readOne(name, data)
	if err != nil {
		return nil, err
	}
	d := &decoder{file: name, last: lines(data), values: map[string]*yaml.Node{}, keys: map[string]*yaml.Node{}}
	if err := d.value(root, reflect.ValueOf(out).Elem(), ""); err != nil {
		return nil, err
	}
	var e *Error
	if err := check(); errors.As(err, &e) {
		return nil, d.place(e)
	}
	return d, nil
}

// readOne returns the mapping at the top of the only document in data.
func readOne(name string, data []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	switch err := dec.Decode(&doc); {
	case err == io.EOF:
		return nil, &Error{File: name, Line: 1, Column: 1, Text: found("nothing", "a manifest")}
	case err != nil:
		return nil, syntaxError(name, data, err)
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		return nil, &Error{File: name, Line: second.Line, Column: second.Column, Text: found("a second document", "one")}
	case err != io.EOF:
		return nil, syntaxError(name, data, err)
	}
	return doc.Content[0], nil
}
