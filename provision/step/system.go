package step

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"

	"clusterctl/provision/host"
)

// Sysctl sets a kernel setting at runtime. A File step makes it persistent. Settings that cannot be written are
// reported by preflight and get no such step.
type Sysctl struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Label names the setting.
func (s *Sysctl) Label() string { return "sysctl " + s.Name }

func (s *Sysctl) path() string {
	return path.Join("/proc/sys", strings.ReplaceAll(s.Name, ".", "/"))
}

// Check reads the setting.
func (s *Sysctl) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	text, err := h.ReadFile(s.path())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Change{}, err
	}
	now := strings.TrimSpace(string(text))
	if now == s.Value {
		return Change{}, nil
	}
	return Change{Action: Update, Kind: "sysctl", Name: s.Name, Diff: []string{"- " + now, "+ " + s.Value}}, nil
}

// Apply sets the setting. Before the first change, it saves the original value.
func (s *Sysctl) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	if err := saveSysctl(h, s.Name); err != nil {
		return err
	}
	return setSysctl(ctx, h, s.Name, s.Value)
}

func setSysctl(ctx context.Context, h host.Host, name, value string) error {
	_, err := h.Run(ctx, "sysctl", "-q", "-w", name+"="+value)
	return err
}
