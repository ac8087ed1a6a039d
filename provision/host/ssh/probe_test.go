package ssh

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The probe distinguishes by the output of sudo why a user does not become root.
func TestTheProbeReportsHowAUserBecomesRoot(t *testing.T) {
	const refuses, permits = "exit 1", "exit 0"
	for name, row := range map[string]struct {
		programs map[string]string // the scripts that the machine has
		want     string
	}{
		"root":               {map[string]string{"id": "echo 0"}, "root"},
		"sudo":               {map[string]string{"sudo": permits}, "nopass"},
		"sudo and doas":      {map[string]string{"sudo": permits, "doas": permits}, "nopass"},
		"sudo with password": {map[string]string{"sudo": "echo 'sudo: a password is required' >&2; exit 1"}, "pass"},
		"sudo with requiretty": {map[string]string{
			"sudo": "echo 'sudo: sorry, you must have a tty to run sudo' >&2; exit 1"}, "tty"},
		"sudo with requiretty and a host name that does not resolve": {map[string]string{
			"sudo": "echo 'sudo: unable to resolve host a' >&2; " +
				"echo 'sudo: sorry, you must have a tty to run sudo' >&2; exit 1"}, "tty"},
		"doas":               {map[string]string{"doas": permits}, "doas"},
		"sudo refuses, doas": {map[string]string{"sudo": refuses, "doas": permits}, "doas"},
		"doas with password": {map[string]string{"doas": refuses}, "doaspass"},
		"neither":            {nil, "nosudo"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			scripts := map[string]string{"id": "echo 1000", "uname": "echo Linux"}
			for program, text := range row.programs {
				scripts[program] = text
			}
			for program, text := range scripts {
				text = "#!/bin/sh\n" + text + "\n"
				if err := os.WriteFile(filepath.Join(dir, program), []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", fmt.Sprintf(probeCommand, dir+"/missing"))
			cmd.Env = []string{"PATH=" + dir}
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			found, err := parseProbe(string(out))
			if err != nil || found[3] != row.want || found[4] != "absent" {
				t.Errorf("the probe prints %q, %v, want %s", strings.Fields(string(out)), err, row.want)
			}
		})
	}
}
