package local

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"

	"clusterctl/provision/host"
)

func (h *Host) systemd(ctx context.Context) (*dbus.Conn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn != nil && h.conn.Connected() {
		return h.conn, nil
	}
	// The private socket works without a message bus. The connection outlives ctx.
	conn, err := dbus.NewSystemdConnectionContext(context.WithoutCancel(ctx))
	if err != nil {
		if conn, err = dbus.NewSystemConnectionContext(context.WithoutCancel(ctx)); err != nil {
			return nil, fmt.Errorf("reach systemd: %w", err)
		}
	}
	h.conn = conn
	return conn, nil
}

// Unit returns a unit's state.
func (h *Host) Unit(ctx context.Context, name string) (host.Unit, error) {
	conn, err := h.systemd(ctx)
	if err != nil {
		return host.Unit{}, err
	}
	p, err := conn.GetUnitPropertiesContext(ctx, name)
	if err != nil {
		return host.Unit{}, fmt.Errorf("read unit %s: %w", name, err)
	}
	text := func(key string) string {
		s, _ := p[key].(string)
		return s
	}
	if text("LoadState") == "not-found" {
		return host.Unit{}, nil
	}
	reload, _ := p["NeedDaemonReload"].(bool)
	u := host.Unit{
		Active:      text("ActiveState"),
		Enabled:     text("UnitFileState") == "enabled",
		NeedsReload: reload,
		Fragment:    text("FragmentPath"),
	}
	if at, _ := p["ActiveEnterTimestamp"].(uint64); at > 0 {
		u.Started = time.UnixMicro(int64(at))
	}
	u.Process, u.Program = mainProcess(ctx, conn, name)
	if !u.Enabled {
		// systemd reports what it read before the last reload, but the files decide.
		files, err := conn.ListUnitFilesByPatternsContext(ctx, []string{"enabled"}, []string{name})
		if err != nil {
			return host.Unit{}, fmt.Errorf("read unit %s: %w", name, err)
		}
		u.Enabled = len(files) > 0
	}
	return u, nil
}

// mainProcess returns the ID and the executable of a unit's main process, or zero values if it has none.
func mainProcess(ctx context.Context, conn *dbus.Conn, name string) (id uint32, program string) {
	p, err := conn.GetUnitTypePropertyContext(ctx, name, "Service", "MainPID")
	if err != nil {
		return 0, ""
	}
	if id, _ = p.Value.Value().(uint32); id == 0 {
		return 0, ""
	}
	program, _ = os.Readlink(fmt.Sprintf("/proc/%d/exe", id))
	return id, strings.TrimSuffix(program, " (deleted)")
}

// Reload makes systemd read unit files again.
func (h *Host) Reload(ctx context.Context) error {
	conn, err := h.systemd(ctx)
	if err != nil {
		return err
	}
	return conn.ReloadContext(ctx)
}

// Enable makes a unit start at boot.
func (h *Host) Enable(ctx context.Context, name string) error {
	conn, err := h.systemd(ctx)
	if err != nil {
		return err
	}
	_, _, err = conn.EnableUnitFilesContext(ctx, []string{name}, false, true)
	return err
}

// Disable undoes Enable.
func (h *Host) Disable(ctx context.Context, name string) error {
	conn, err := h.systemd(ctx)
	if err != nil {
		return err
	}
	_, err = conn.DisableUnitFilesContext(ctx, []string{name}, false)
	return err
}

// Start starts a unit and waits until it is active.
func (h *Host) Start(ctx context.Context, name string) error {
	return h.runJob(ctx, name, func(conn *dbus.Conn, done chan<- string) error {
		_, err := conn.StartUnitContext(ctx, name, "replace", done)
		return err
	})
}

// Restart restarts a unit and waits until it is active.
func (h *Host) Restart(ctx context.Context, name string) error {
	return h.runJob(ctx, name, func(conn *dbus.Conn, done chan<- string) error {
		_, err := conn.RestartUnitContext(ctx, name, "replace", done)
		return err
	})
}

// Stop stops a unit and waits. A unit that is not running is no error.
func (h *Host) Stop(ctx context.Context, name string) error {
	// systemd refuses to stop a unit that it has not loaded.
	if u, err := h.Unit(ctx, name); err != nil || u.Active == "" || u.Active == "inactive" || u.Active == "failed" {
		return err
	}
	conn, err := h.systemd(ctx)
	if err != nil {
		return err
	}
	done := make(chan string, 1)
	if _, err := conn.StopUnitContext(ctx, name, "replace", done); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop %s: %w", name, ctx.Err())
	}
}

// maxRestarts is how often a starting unit may end and be restarted by its Restart= setting before the wait fails. A
// unit that waits for another machine does not end, and one that cannot run ends every time.
const maxRestarts = 3

// runJob starts a systemd job and waits until the unit is active. A unit that fails once may still become active by its
// Restart= setting. Therefore runJob fails only at the deadline, if the unit ends repeatedly, or if systemd gives up.
func (h *Host) runJob(ctx context.Context, name string, ask func(*dbus.Conn, chan<- string) error) error {
	conn, err := h.systemd(ctx)
	if err != nil {
		return err
	}
	// This resets the restart counter of a unit that systemd has given up.
	_ = conn.ResetFailedUnitContext(ctx, name)
	done := make(chan string, 1)
	if err := ask(conn, done); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case result := <-done:
			if result == "done" {
				return nil
			}
			done = nil // its Restart= setting may still make it active
		case <-tick.C:
		case <-ctx.Done():
			return unitError(conn, name, ctx.Err())
		}
		u, err := h.Unit(ctx, name)
		switch {
		case err != nil:
			continue
		case done == nil && u.Active == "active":
			return nil
		case done == nil && u.Active == "failed":
			return unitError(conn, name, errors.New("it ended and is not started again"))
		}
		if n := restartCount(ctx, conn, name); n >= maxRestarts {
			return unitError(conn, name, fmt.Errorf("it ended as soon as it was started, %d times", n+1))
		}
	}
}

// restartCount returns how often systemd has restarted a failing service.
func restartCount(ctx context.Context, conn *dbus.Conn, name string) uint32 {
	p, err := conn.GetUnitTypePropertiesContext(ctx, name, "Service")
	if err != nil {
		return 0
	}
	if result, _ := p["Result"].(string); result == "success" {
		return 0
	}
	n, _ := p["NRestarts"].(uint32)
	return n
}

// unitError returns an error that contains the output of the unit's last run.
func unitError(conn *dbus.Conn, name string, cause error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	output := lastOutput(ctx, conn, name)
	if output == "" {
		return fmt.Errorf("%w: %w", host.ErrUnit, cause)
	}
	return fmt.Errorf("%w: %w; the journal says:\n%s", host.ErrUnit, cause, output)
}

// JournalTail returns the output of a unit's last run.
func (h *Host) JournalTail(ctx context.Context, name string) string {
	conn, err := h.systemd(ctx)
	if err != nil {
		return ""
	}
	return lastOutput(ctx, conn, name)
}

func lastOutput(ctx context.Context, conn *dbus.Conn, name string) (output string) {
	if p, err := conn.GetUnitPropertyContext(ctx, name, "InvocationID"); err == nil {
		if id, ok := p.Value.Value().([]byte); ok && len(id) > 0 {
			output = journalTail(ctx, "_SYSTEMD_INVOCATION_ID="+hex.EncodeToString(id))
		}
	}
	if output == "" { // it has just been restarted
		output = journalTail(ctx, "_SYSTEMD_UNIT="+name)
	}
	if output == "" { // it could not be executed at all
		output = journalTail(ctx, "-u", name)
	}
	return output
}
