// Package compose loads a Compose project for clusterctl convert, in a process that can read the project's folder only.
package compose

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// Command is the first argument of the process.
const Command = "compose"

// Bounds of a project.
const (
	timeout   = 30 * time.Second
	maxMemory = 1 << 30 // bytes of data
	maxCPU    = 30      // seconds
	maxText   = 1 << 20 // bytes of a config or secret
)

// noLandlock begins the error on a kernel that cannot restrict the process.
const noLandlock = "this kernel does not offer Landlock"

// document is the output: the project as the Compose specification resolves it.
type document struct {
	Project  json.RawMessage   `json:"project"`
	Texts    map[string]string `json:"texts"`    // contents by configs.NAME and secrets.NAME
	Disabled []string          `json:"disabled"` // services whose profiles are not active
	Unread   map[string]string `json:"unread"`   // reasons by configs.NAME and secrets.NAME
}

// Run loads the project of the files in args, and writes it to out as JSON.
func Run(ctx context.Context, args []string, out io.Writer) error {
	flags := pflag.NewFlagSet(Command, pflag.ContinueOnError)
	profiles := flags.StringArray("profile", nil, "profile to activate")
	useEnv := flags.Bool("env", false, "interpolate with the environment of the process")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("usage: gitops-controller compose [--env] [--profile NAME]… FILE…")
	}
	files := make([]string, flags.NArg())
	for i, file := range flags.Args() {
		absolute, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		files[i] = absolute
	}
	dir := filepath.Dir(files[0])
	if err := confine(append([]string{dir}, files...)); err != nil {
		return fmt.Errorf("restrict the process to %s: %w", dir, err)
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	project, err := load(limited, dir, files, *profiles, *useEnv)
	if err != nil {
		return err
	}
	d := document{Texts: map[string]string{}, Unread: map[string]string{}}
	if d.Project, err = project.MarshalJSON(); err != nil {
		return fmt.Errorf("encode the project: %w", err)
	}
	d.Disabled = slices.Sorted(maps.Keys(project.DisabledServices))
	for name, c := range project.Configs {
		d.read("configs."+name, types.FileObjectConfig(c), project.Environment)
	}
	for name, s := range project.Secrets {
		d.read("secrets."+name, types.FileObjectConfig(s), project.Environment)
	}
	return json.NewEncoder(out).Encode(d)
}

// load loads a project. The variables for interpolation come from the .env file, and from the process if useEnv.
func load(ctx context.Context, dir string, files, profiles []string, useEnv bool) (*types.Project, error) {
	options := []cli.ProjectOptionsFn{cli.WithWorkingDirectory(dir)}
	if useEnv {
		options = append(options, cli.WithOsEnv)
	}
	if _, err := os.Stat(filepath.Join(dir, ".env")); err == nil {
		options = append(options, cli.WithEnvFiles(filepath.Join(dir, ".env")), cli.WithDotEnv)
	}
	options = append(options, cli.WithProfiles(profiles), cli.WithResolvedPaths(true), cli.WithDiscardEnvFile)
	prepared, err := cli.NewProjectOptions(files, options...)
	if err != nil {
		return nil, err
	}
	return prepared.LoadProject(ctx)
}

// read reads the content of a config or secret.
func (d *document) read(name string, c types.FileObjectConfig, environment types.Mapping) {
	switch {
	case bool(c.External):
	case c.Content != "":
		d.Texts[name] = c.Content
	case c.Environment != "":
		value, ok := environment[c.Environment]
		if !ok {
			d.Unread[name] = fmt.Sprintf("the variable %s is not set", c.Environment)
			return
		}
		d.Texts[name] = value
	case c.File != "":
		text, err := readFile(c.File)
		if err != nil {
			d.Unread[name] = err.Error()
			return
		}
		d.Texts[name] = text
	}
}

func readFile(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", errors.New("it is not a regular file")
	}
	var text bytes.Buffer
	if n, err := io.Copy(&text, io.LimitReader(f, maxText+1)); err != nil {
		return "", err
	} else if n > maxText {
		return "", fmt.Errorf("it has more than %d bytes", maxText)
	}
	if strings.ToValidUTF8(text.String(), "") != text.String() {
		return "", errors.New("it is not text")
	}
	return text.String(), nil
}

// confine limits the resources of the process, and lets it read only below the given paths. See
// https://docs.kernel.org/userspace-api/landlock.html.
func confine(paths []string) error {
	for resource, limit := range map[int]uint64{unix.RLIMIT_DATA: maxMemory, unix.RLIMIT_CPU: maxCPU,
		unix.RLIMIT_FSIZE: 0, unix.RLIMIT_CORE: 0} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("limit resource %d: %w", resource, err)
		}
	}
	const reads = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	handled := unix.LandlockRulesetAttr{Handled_access_fs: reads | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_EXECUTE}
	ruleset, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&handled)),
		unsafe.Sizeof(handled.Handled_access_fs), 0)
	if errno != 0 {
		return fmt.Errorf("%s: %w", noLandlock, errno)
	}
	defer unix.Close(int(ruleset))
	for _, path := range paths {
		if err := allow(int(ruleset), path, reads); err != nil {
			return fmt.Errorf("allow reading %s: %w", path, err)
		}
	}
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// allow adds the right to read a path, and what is below it, to a ruleset.
func allow(ruleset int, path string, access uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return err
	}
	if info.Mode&unix.S_IFMT != unix.S_IFDIR {
		access = unix.LANDLOCK_ACCESS_FS_READ_FILE
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	if _, _, errno := syscall.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
