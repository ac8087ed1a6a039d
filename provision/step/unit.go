package step

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"clusterctl/provision/host"
)

// Unit makes a systemd unit enabled and running with the present content of its files.
type Unit struct {
	Name string `json:"name"`
	// Files are the files whose change restarts the unit, including its own file.
	Files []string `json:"files"`
	// may be started in parallel with its neighbours in the list
	CanStartInParallel bool          `json:"beside,omitempty"`
	Timeout            time.Duration `json:"timeout,omitempty"` // timeout for becoming ready; zero means two minutes
}

// MarkerDir is the directory with the digests of the files that units were started with.
const MarkerDir = "/var/lib/clusterctl/units"

// Label names the unit.
func (s *Unit) Label() string { return "unit " + s.Name }

func (s *Unit) marker() string { return path.Join(MarkerDir, s.Name) }

// Check compares the unit's state, and its files with the digest that it was started with.
func (s *Unit) Check(ctx context.Context, h host.Host, w *Walk) (Change, error) {
	u, err := s.awaitStarted(ctx, h, w)
	if err != nil {
		return Change{}, err
	}
	c := Change{Kind: "unit", Name: s.Name}
	if u.Active != "active" {
		_, err := h.Stat(s.marker())
		if c.IsBroken = err == nil; err != nil && !errors.Is(err, fs.ErrNotExist) { // it has run before
			return Change{}, err
		}
	}
	switch {
	case u.Fragment == "":
		c.Action, c.Note = Create, "start"
		return c, nil
	case u.Active != "active":
		c.Action, c.Note = Update, "start, it is "+u.Active
		return c, nil
	case !u.Enabled:
		c.Action, c.Note = Update, "enable"
	}
	if touched := w.Touched(s.Files); len(touched) > 0 && !s.onlyRestoresLinks(h, w) {
		c.Action, c.Note = Update, "restart, for "+baseNames(touched)
		return c, nil
	}
	digest, err := s.digest(h, w)
	if err != nil {
		return Change{}, err
	}
	if marked, err := h.ReadFile(s.marker()); err != nil || strings.TrimSpace(string(marked)) != digest {
		c.Action, c.Note = Update, "restart, its files changed since it was started"
		return c, nil
	}
	if u.NeedsReload {
		c.Action, c.Note = Update, "restart, its unit file changed"
	}
	if c.Action == "" {
		return Change{}, nil
	}
	return c, nil
}

// startingTimeout is how long Check waits for a unit that systemd is starting. A daemon that lost its lease or was
// killed is back within moments, and needs no change.
const startingTimeout = 5 * time.Second

// awaitStarted returns the unit's state. It waits for a unit that is starting, unless the unit will be restarted
// anyway.
func (s *Unit) awaitStarted(ctx context.Context, h host.Host, w *Walk) (host.Unit, error) {
	timer := time.NewTimer(startingTimeout)
	defer timer.Stop()
	tick := time.NewTicker(startingTimeout / 50)
	defer tick.Stop()
	for {
		u, err := h.Unit(ctx, s.Name)
		if err != nil || u.Active != "activating" || len(w.Touched(s.Files)) > 0 {
			return u, err
		}
		select {
		case <-tick.C:
		case <-timer.C:
			return u, nil
		case <-ctx.Done():
			return u, ctx.Err()
		}
	}
}

func baseNames(paths []string) string {
	const maximum = 3
	var list []string
	for i, p := range paths {
		if i == maximum {
			list = append(list, fmt.Sprintf("and %d more", len(paths)-maximum))
			break
		}
		list = append(list, path.Base(p))
	}
	return strings.Join(list, ", ")
}

// onlyRestoresLinks reports whether the only changes are lost links that are created again with their former targets,
// for example after a program's link was deleted. The unit need not restart for that.
func (s *Unit) onlyRestoresLinks(h host.Host, w *Walk) bool {
	for _, p := range w.Touched(s.Files) {
		if _, link := w.links[p]; !link {
			return false
		}
	}
	digest, err := s.digest(h, w)
	if err != nil {
		return false
	}
	marked, err := h.ReadFile(s.marker())
	return err == nil && strings.TrimSpace(string(marked)) == digest
}

// digest returns the digest of all files that the unit reads when it starts, including links that this walk creates
// again.
func (s *Unit) digest(h host.Host, w *Walk) (string, error) {
	sum := sha256.New()
	for _, p := range s.Files {
		if target, link := w.links[p]; link {
			fmt.Fprintf(sum, "%s %d\n", p, len(target))
			_, _ = sum.Write([]byte(target))
			continue
		}
		info, err := h.Stat(p)
		if errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(sum, "%s absent\n", p)
			continue
		}
		if err != nil {
			return "", err
		}
		content := []byte(info.Target) // the target's path contains the digest of its content
		if info.Target == "" {
			if content, err = h.ReadFile(p); err != nil {
				return "", err
			}
		}
		fmt.Fprintf(sum, "%s %d\n", p, len(content))
		_, _ = sum.Write(content)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Apply enables the unit, starts or restarts it, and waits until it is ready. If the unit runs with the present files,
// it is only enabled.
func (s *Unit) Apply(ctx context.Context, h host.Host, w *Walk) error {
	timeout := s.Timeout
	if timeout == 0 {
		timeout = 2 * time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	digest, err := s.digest(h, w)
	if err != nil {
		return err
	}
	if err := h.Enable(ctx, s.Name); err != nil {
		return fmt.Errorf("enable %s: %w", s.Name, err)
	}
	u, err := h.Unit(ctx, s.Name)
	if err != nil {
		return err
	}
	if u.NeedsReload { // an interrupted run has changed the unit's file
		if err := h.Reload(ctx); err != nil {
			return fmt.Errorf("have systemd read its units again: %w", err)
		}
	}
	marked, err := h.ReadFile(s.marker())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch current := strings.TrimSpace(string(marked)) == digest &&
		(len(w.Touched(s.Files)) == 0 || s.onlyRestoresLinks(h, w)) && !u.NeedsReload; {
	case !current && u.Active != "inactive" && u.Active != "failed" && u.Active != "":
		err = h.Restart(ctx, s.Name) // also if it is still starting with the former files
	case u.Active != "active":
		err = h.Start(ctx, s.Name)
	default:
		return nil
	}
	if err != nil {
		return err
	}
	return h.WriteFile(s.marker(), strings.NewReader(digest+"\n"), 0o644, 0, 0)
}

// RemoveUnit removes a unit that clusterctl wrote.
type RemoveUnit struct {
	Name string `json:"name"`
	Path string `json:"path"` // path of the unit's file
	// Written, if set, is the beginning of unit files that clusterctl wrote. Other files are kept.
	Written string `json:"written,omitempty"`
}

// Label names the unit.
func (s *RemoveUnit) Label() string { return "no unit " + s.Name }

// Check looks for the unit's file.
func (s *RemoveUnit) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	text, err := h.ReadFile(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return Change{}, nil
	}
	if err != nil {
		return Change{}, err
	}
	if !strings.HasPrefix(string(text), s.Written) {
		return Change{}, nil
	}
	return Change{Action: Delete, Kind: "unit", Name: s.Name, Note: "stop"}, nil
}

// Apply stops the unit and removes its file.
func (s *RemoveUnit) Apply(ctx context.Context, h host.Host, w *Walk) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := h.Stop(ctx, s.Name); err != nil {
		return err
	}
	if err := h.Disable(ctx, s.Name); err != nil {
		return err
	}
	if err := h.RemoveAll(path.Join(MarkerDir, s.Name)); err != nil {
		return err
	}
	if err := h.RemoveAll(s.Path); err != nil {
		return err
	}
	if err := (&DropIns{Unit: s.Name}).Apply(ctx, h, w); err != nil { // left from a unit that no longer exists
		return err
	}
	return h.Reload(ctx)
}

// StopPods stops all containers.
type StopPods struct{}

// Label returns a fixed text.
func (s *StopPods) Label() string { return "no pods" }

// Check counts the runtime's containers.
func (s *StopPods) Check(ctx context.Context, h host.Host, _ *Walk) (Change, error) {
	n, err := h.Containers(ctx)
	if err != nil || n == 0 {
		return Change{}, err
	}
	return Change{Action: Delete, Kind: "pods", Note: fmt.Sprintf("stop the %d that run", n)}, nil
}

// Apply stops the containers.
func (s *StopPods) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	return h.StopContainers(ctx)
}
