package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newDocsCmd makes the man pages that make install puts in place. It does without cobra's generator, which would bring a
// Markdown parser into a program that runs as root.
func newDocsCmd() *cobra.Command {
	docs := &cobra.Command{Use: "docs", Short: "Make the manual's pages", Hidden: true}
	docs.AddCommand(&cobra.Command{
		Use:   "man DIR",
		Short: "Write a man page for each command into DIR",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := writeMan(cmd.Root(), args[0]); err != nil {
				return &exitError{125, fmt.Errorf("docs: %w", err)}
			}
			return nil
		},
	})
	return docs
}

func writeMan(cmd *cobra.Command, dir string) error {
	if cmd.Hidden || cmd.Name() == "help" {
		return nil
	}
	for _, c := range cmd.Commands() {
		if err := writeMan(c, dir); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, manName(cmd)+".1"), manPage(cmd), 0o644)
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage is one page in the macros of man(7).
func manPage(cmd *cobra.Command) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"sharness %s\" \"sharness\"\n", strings.ToUpper(manName(cmd)), version)
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(manName(cmd)), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(synopsis(cmd)))
	if cmd.Long != "" {
		fmt.Fprintf(&b, ".SH DESCRIPTION\n%s", paragraphs(cmd.Long))
	}
	if cmd.HasAvailableLocalFlags() {
		b.WriteString(".SH OPTIONS\n")
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { manFlag(&b, f) })
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n%s", paragraphs(cmd.Example))
	}
	if also := manAlso(cmd); len(also) > 0 {
		fmt.Fprintf(&b, ".SH SEE ALSO\n%s\n", roff(strings.Join(also, ", ")))
	}
	return b.Bytes()
}

// synopsis says that there are more options than the line has, if there are.
func synopsis(cmd *cobra.Command) string {
	line := strings.Replace(cmd.UseLine(), " [flags]", "", 1)
	more := false
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		named := strings.Contains(line, "--"+f.Name) || f.Shorthand != "" && strings.Contains(line, "-"+f.Shorthand+" ")
		more = more || !named && !f.Hidden && f.Name != "help"
	})
	if !more {
		return line
	}
	path := cmd.CommandPath()
	return path + " [OPTION]…" + strings.TrimPrefix(line, path)
}

func manFlag(b *bytes.Buffer, f *pflag.Flag) {
	if f.Hidden {
		return
	}
	name, usage := pflag.UnquoteUsage(f)
	text := "--" + f.Name
	if f.Shorthand != "" {
		text = "-" + f.Shorthand + ", " + text
	}
	if name != "" {
		text += " " + name
	}
	fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(text), roff(usage))
}

func manAlso(cmd *cobra.Command) []string {
	var also []string
	if cmd.HasParent() {
		also = append(also, manName(cmd.Parent())+"(1)")
	}
	if !cmd.HasParent() || cmd.Name() == "enforce" || cmd.Name() == "serve" {
		also = append(also, "sharness-bash(1)")
	}
	for _, c := range cmd.Commands() {
		if !c.Hidden && c.Name() != "help" {
			also = append(also, manName(c)+"(1)")
		}
	}
	return also
}

// paragraphs keeps indented lines as they are, and lets the others be filled.
func paragraphs(text string) string {
	var b strings.Builder
	verbatim := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if indented := strings.HasPrefix(line, "  "); indented != verbatim && line != "" {
			b.WriteString(map[bool]string{true: ".PP\n.nf\n", false: ".fi\n.PP\n"}[indented])
			verbatim = indented
		}
		if line == "" && !verbatim {
			line = ".PP"
		} else {
			line = roff(line)
		}
		b.WriteString(line + "\n")
	}
	if verbatim {
		b.WriteString(".fi\n")
	}
	return b.String()
}

// roff escapes what the formatter would take for its own.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
