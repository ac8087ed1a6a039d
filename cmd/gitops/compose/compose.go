// Package compose converts a Compose project to Kubernetes objects for clusterctl convert, in a process that can read
// the project's folder only. See https://github.com/compose-spec/compose-spec.
package compose

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
)

// Command is the first argument of the process.
const Command = "compose"

// timeout limits loading a project.
const timeout = 30 * time.Second

// Run converts the project of the files in args, and writes a convert.Converted to out.
func Run(ctx context.Context, args []string, out io.Writer) error {
	flags := pflag.NewFlagSet(Command, pflag.ContinueOnError)
	var o options
	flags.StringArrayVar(&o.profiles, "profile", nil, "profile to activate")
	flags.BoolVar(&o.useEnv, "env", false, "interpolate with the environment of the process")
	flags.BoolVar(&o.hostPaths, "host-paths", false, "mount the paths of bind mounts from the nodes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("usage: gitops-controller compose [--env] [--host-paths] [--profile NAME]… FILE…")
	}
	o.names = flags.Args()
	for _, file := range o.names {
		absolute, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		o.files = append(o.files, absolute)
	}
	dir := filepath.Dir(o.files[0])
	if err := confine(append([]string{dir}, o.files...)); err != nil {
		return fmt.Errorf("restrict the process to %s: %w", dir, err)
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	warnings := &warnings{}
	logrus.SetOutput(io.Discard)
	logrus.AddHook(warnings)
	s, err := loadProject(limited, o)
	if err != nil {
		return err
	}
	s.unset = warnings.unset
	return json.NewEncoder(out).Encode(s.convert())
}

// warnings collects the variables that the loader replaces by nothing.
type warnings struct{ unset []string }

var unsetVariable = regexp.MustCompile(`^The "(\w+)" variable is not set`)

// Levels returns the level of warnings.
func (*warnings) Levels() []logrus.Level { return []logrus.Level{logrus.WarnLevel} }

// Fire collects the variable of a warning.
func (w *warnings) Fire(e *logrus.Entry) error {
	m := unsetVariable.FindStringSubmatch(e.Message)
	if m != nil && !slices.Contains(w.unset, m[1]) {
		w.unset = append(w.unset, m[1])
	}
	return nil
}
