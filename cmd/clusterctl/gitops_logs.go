package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"clusterctl/hcl/config"
	"clusterctl/provision/bundle"
	"clusterctl/provision/host/ssh"
)

// Bounds of what `gitops logs` reads.
const (
	maxLogLine  = 1 << 20 // bytes of an entry of the journal
	maxLogLines = 20_000  // lines of a source on a machine; older ones are left out
)

// sourceLog is a line of the controller's log about a source.
type sourceLog struct {
	Time    time.Time `json:"time"`
	Machine string    `json:"machine"`
	Level   string    `json:"level"`
	Message string    `json:"message"`
	Reason  string    `json:"reason,omitempty"`
	Error   string    `json:"error,omitempty"`
}

// logReader reads the controller's log of one source on the control-plane machines.
type logReader struct {
	source string // NAMESPACE/NAME
	since  time.Time
	follow bool
	// run runs a command on a machine, and writes its output.
	run func(ctx context.Context, m config.Machine, command string, out io.Writer) error
}

func newGitOpsLogs() *cobra.Command {
	var flags folderFlags
	var follow bool
	var since time.Duration
	var output string
	c := &cobra.Command{
		Use:   "logs SOURCE",
		Short: "Show what the controller has logged about a source",
		Long: `Show what the GitOps controller has logged about a source.

The journals of all control-plane machines are read over ssh, since each of them may have been active. The user that
logs in must be allowed to read the journal, or to use sudo without a password.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if output != "" && output != outputJSON {
				return fmt.Errorf("-output=%s: it is json", output)
			}
			configuration, err := flags.loadOffline(c, []string{flags.folder})
			if err != nil {
				return err
			}
			reader := logReader{source: parseSource(args[0]).String(), since: time.Now().Add(-since), follow: follow,
				run: flags.runOn}
			show := func(l sourceLog) error { return l.print(c.OutOrStdout(), output == outputJSON) }
			return reader.read(c.Context(), configuration.Cluster.ControlPlane(), c.ErrOrStderr(), show)
		},
	}
	flags.add(c, false)
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new lines")
	c.Flags().DurationVar(&since, "since", time.Hour, "how far back the log is read")
	c.Flags().StringVarP(&output, "output", "o", "", "`format`: json, one object for each line; text when empty")
	return c
}

// runOn logs in to a machine and runs a command.
func (f *runFlags) runOn(ctx context.Context, m config.Machine, command string, out io.Writer) error {
	client, err := ssh.Dial(ctx, m, f.sshOptions())
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	return client.Run(ctx, command, out)
}

// command returns the command that prints the entries of the journal.
func (r logReader) command() string {
	journal := fmt.Sprintf("journalctl --no-pager -q -u %s.service -o json --output-fields=MESSAGE --since=@%d",
		bundle.GitOps, r.since.Unix())
	if r.follow {
		journal += " -f -n all"
	}
	return `if [ "$(id -u)" -ne 0 ] && sudo -n true 2>/dev/null; then exec sudo -n ` + journal + "; fi; exec " + journal
}

// read calls show for the lines of all machines. Without follow, they are in the order of their time.
func (r logReader) read(ctx context.Context, machines []config.Machine, warn io.Writer,
	show func(sourceLog) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all []sourceLog
	var mu sync.Mutex // guards all, failed and the calls of show and warn
	var failed []string
	var wg sync.WaitGroup
	for _, m := range machines {
		wg.Go(func() {
			var own []sourceLog
			err := r.readMachine(ctx, m, func(l sourceLog) error {
				if r.follow {
					mu.Lock()
					defer mu.Unlock()
					return show(l)
				}
				if own = append(own, l); len(own) >= 2*maxLogLines {
					own = slices.Clone(own[maxLogLines:])
				}
				return nil
			})
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own[max(0, len(own)-maxLogLines):]...)
			if err != nil && ctx.Err() == nil {
				failed = append(failed, m.Name+": "+err.Error())
				fmt.Fprintf(warn, "Warning: the journal of %s is not read: %v\n", m.Name, err)
			}
		})
	}
	wg.Wait()
	slices.SortStableFunc(all, func(a, b sourceLog) int { return a.Time.Compare(b.Time) })
	for _, l := range all {
		if err := show(l); err != nil {
			return err
		}
	}
	if len(failed) > 0 && len(failed) == len(machines) {
		return errors.New("no journal can be read")
	}
	return nil
}

// readMachine calls take for the lines of a machine.
func (r logReader) readMachine(ctx context.Context, m config.Machine, take func(sourceLog) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := r.run(ctx, m, r.command(), writer)
		_ = writer.CloseWithError(io.EOF) // never fails
		done <- err
	}()
	lines := bufio.NewScanner(reader)
	lines.Buffer(nil, maxLogLine)
	var failed error
	for failed == nil && lines.Scan() {
		if l, ok := parseLog(lines.Bytes(), r.source); ok {
			l.Machine = m.Name
			failed = take(l)
		}
	}
	if failed == nil {
		failed = lines.Err()
	}
	if failed != nil {
		cancel()
	}
	_ = reader.Close() // never fails
	if err := <-done; failed == nil {
		failed = err
	}
	return failed
}

// parseLog parses an entry of the journal in JSON. ok is false if it is not about the source.
func parseLog(entry []byte, source string) (l sourceLog, ok bool) {
	var e struct {
		Micros  string `json:"__REALTIME_TIMESTAMP"`
		Message string `json:"MESSAGE"`
	}
	if json.Unmarshal(entry, &e) != nil { // a message that is not text is a list of bytes
		return l, false
	}
	fields := logFields(e.Message)
	micros, err := strconv.ParseInt(e.Micros, 10, 64)
	if fields["source"] != source || err != nil {
		return l, false
	}
	return sourceLog{Time: time.UnixMicro(micros).UTC(), Level: fields["level"], Message: fields["msg"],
		Reason: fields["reason"], Error: fields["err"]}, true
}

// logFields returns the fields of a line as log/slog writes it. Values with spaces are quoted.
func logFields(line string) map[string]string {
	fields := map[string]string{}
	for line != "" {
		key, rest, ok := strings.Cut(line, "=")
		if !ok {
			break
		}
		var value string
		if quoted, err := strconv.QuotedPrefix(rest); err == nil {
			value, _ = strconv.Unquote(quoted) // is quoted
			line = rest[len(quoted):]
		} else {
			value, line, _ = strings.Cut(rest, " ")
		}
		key = strings.TrimSpace(key)
		if _, isKnown := fields[key]; !isKnown {
			fields[key] = value
		}
		line = strings.TrimPrefix(line, " ")
	}
	return fields
}

// print writes a line as JSON or as text.
func (l sourceLog) print(out io.Writer, isJSON bool) error {
	if isJSON {
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(l)
	}
	text := l.Message
	if l.Reason != "" {
		text = l.Reason + ": " + text
	}
	if l.Error != "" {
		text += ": " + l.Error
	}
	_, err := fmt.Fprintf(out, "%s %s %-5s %s\n", l.Time.Format(time.RFC3339), l.Machine, l.Level,
		config.EscapeLine(text))
	return err
}
