// Package protect keeps an agent and its commands from turning the user's own tools against the user: it finds what of
// a workspace must be read-only in every view (git's hooks and configuration, settings that editors, agents and shells
// execute), says how to mount it, and takes away what appears under a protected name that did not exist at the start.
//
// Discover and Watcher run with the user's ids and never with root's; every step is relative to the descriptor of the
// workspace and resolved beneath it without following a link that was not looked at. The supervisor reads their result
// as bounded, validated data (Decode), and Attach opens each path again, beneath the root, and compares its kind.
//
// A repository that is made during a session is reported, and what would start programs in it is taken at the end; until
// then nothing is promised for it. Nor is for a file that had a second name when the session began, nor for what a person
// replaces from outside (it is reported). docs/protected-paths.md says exactly what holds and which test shows it.
package protect
