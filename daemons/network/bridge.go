package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// bridgeModule is what has packets between pods of one machine pass the packet filter: they need not leave the bridge otherwise, and neither
// network policies nor services would see them.
const bridgeModule = "br_netfilter"

// bridgeSettings is where the kernel has what the module does.
const bridgeSettings = "/proc/sys/net/bridge"

// filterBridged has packets that the pods' bridge passes on pass the packet filter. Where the settings are right, nothing is to be done.
func filterBridged() error {
	if _, err := os.Stat(bridgeSettings); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("have packets between pods of this machine filtered: the kernel's module %s is not loaded", bridgeModule)
	}
	for _, name := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
		path := filepath.Join(bridgeSettings, name)
		have, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("have packets between pods of this machine filtered: %w", err)
		}
		if strings.TrimSpace(string(have)) == "1" {
			continue
		}
		if err := os.WriteFile(path, []byte("1"), 0o644); err != nil {
			return fmt.Errorf("have packets between pods of this machine filtered: %w", err)
		}
	}
	return nil
}

// loadBridgeFilter loads the module, unless the kernel has what it does.
func loadBridgeFilter(ctx context.Context) error {
	if _, err := os.Stat(bridgeSettings); !errors.Is(err, os.ErrNotExist) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "modprobe", bridgeModule).CombinedOutput(); err != nil {
		return fmt.Errorf("load the kernel's module %s: %w: %s", bridgeModule, err, strings.TrimSpace(string(out)))
	}
	return nil
}
