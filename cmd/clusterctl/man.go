package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"clusterctl/daemons/version"
)

// newMan returns the command that writes the manual pages when clusterctl is installed.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man FOLDER",
		Short:  "Write a manual page for every command into a folder",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			date, err := manualDate(os.Getenv("SOURCE_DATE_EPOCH"))
			if err != nil {
				return fmt.Errorf("write the manual: %w", err)
			}
			if err := writeManual(c.Root(), args[0], date); err != nil {
				return fmt.Errorf("write the manual: %w", err)
			}
			return nil
		},
	}
}

// manualDate returns the date of the pages: now, or SOURCE_DATE_EPOCH, which reproducible builds set.
func manualDate(epoch string) (string, error) {
	at := time.Now()
	if epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return "", fmt.Errorf("read SOURCE_DATE_EPOCH: %w", err)
		}
		at = time.Unix(seconds, 0)
	}
	return at.UTC().Format("Jan 2006"), nil
}

// writeManual writes the pages of a command and of its subcommands.
func writeManual(c *cobra.Command, folder, date string) error {
	for _, below := range c.Commands() {
		if !below.IsAvailableCommand() || below.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := writeManual(below, folder, date); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(folder, pageName(c)+".1"), []byte(manualPage(c, date)), 0o644)
}

// pageName returns the name of a command's page, such as clusterctl-etcd-members.
func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manualPage returns the page of a command in the format of man.
func manualPage(c *cobra.Command, date string) string {
	c.InitDefaultHelpCmd()
	c.InitDefaultHelpFlag()
	var b strings.Builder
	fmt.Fprintf(&b, ".nh\n.TH %q \"1\" %q %q \"clusterctl\"\n", strings.ToUpper(pageName(c)), date,
		"clusterctl "+version.Version)
	section := func(title, text string) {
		if text != "" {
			fmt.Fprintf(&b, "\n.SH %s\n%s\n", title, text)
		}
	}
	section("NAME", pageName(c)+" - "+escapeRoff(c.Short))
	section("SYNOPSIS", `\fB`+escapeRoff(c.UseLine())+`\fP`)
	section("DESCRIPTION", strings.ReplaceAll(escapeRoff(cmp.Or(c.Long, c.Short)), "\n\n", "\n\n.PP\n"))
	section("OPTIONS", manualFlags(c.NonInheritedFlags()))
	section("OPTIONS INHERITED FROM PARENT COMMANDS", manualFlags(c.InheritedFlags()))
	if c.Example != "" {
		section("EXAMPLE", ".EX\n"+escapeRoff(c.Example)+"\n.EE")
	}
	section("SEE ALSO", seeAlso(c))
	return b.String()
}

func manualFlags(flags *pflag.FlagSet) string {
	var list []string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Deprecated != "" || f.Hidden {
			return
		}
		text := `\fB--` + f.Name + `\fP`
		if f.Shorthand != "" && f.ShorthandDeprecated == "" {
			text = `\fB-` + f.Shorthand + `\fP, ` + text
		}
		value := f.DefValue
		if f.Value.Type() == "string" {
			value = strconv.Quote(value)
		}
		if value = "=" + value; f.NoOptDefVal != "" {
			value = "[" + value + "]"
		}
		list = append(list, text+escapeRoff(value)+"\n\t"+escapeRoff(f.Usage))
	})
	return strings.Join(list, "\n\n.PP\n")
}

// seeAlso lists the pages of the parent and of the subcommands.
func seeAlso(c *cobra.Command) string {
	var list []string
	if c.HasParent() {
		list = append(list, pageName(c.Parent()))
	}
	for _, below := range c.Commands() {
		if below.IsAvailableCommand() && !below.IsAdditionalHelpTopicCommand() {
			list = append(list, pageName(below))
		}
	}
	for i, name := range list {
		list[i] = `\fB` + name + `(1)\fP`
	}
	return strings.Join(list, ", ")
}

// quotedWord matches a word in back quotes, which is printed bold.
var quotedWord = regexp.MustCompile("`([^`]*)`")

// escapeRoff escapes text, so that no part of it is a request or an escape of roff.
func escapeRoff(text string) string {
	text = strings.ReplaceAll(text, `\`, `\\`)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return quotedWord.ReplaceAllString(strings.Join(lines, "\n"), `\fB$1\fR`)
}
