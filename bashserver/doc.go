// Package bashserver is the face of the bash-server: it reads what clients ask for, decides what that means, and copies
// and filters between a client's descriptors and the fresh pipes of a command. The supervisor, at the other end of a
// socket with a closed table of records, starts and ends the sandboxes.
//
// It promises that a client costs bounded memory and time whatever it sends, that no descriptor of a command reaches a
// client or the other way round, and that the configured secrets do not leave in a command's output, in the forms and
// within the limits that package redact states. It does not judge commands: what a command may do is the sandbox's business. The package holds no privilege and needs none.
package bashserver
