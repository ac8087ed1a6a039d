package link

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Reservations is the directory in which the plugin host-local records the container of each address: a folder for each
// network with a file for each address.
const Reservations = "/var/lib/cni/networks"

// reservationGrace is how long an address may be reserved before its pod uses it.
const reservationGrace = time.Minute

// Reclaim releases the addresses in a folder of host-local whose pods no longer exist, and returns their number. Such
// reservations remain when the runtime's data was lost, or a file was empty after a power loss. Nothing else releases
// them. A pod exists while the machine has its interface or a route to the address.
func Reclaim(folder string, now time.Time) (n int, err error) {
	lock, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil { // the plugin uses the same lock
		return 0, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		a, err := netip.ParseAddr(e.Name())
		if err != nil {
			continue // the file with the last assigned address
		}
		path := filepath.Join(folder, e.Name())
		info, err := os.Stat(path)
		if err != nil {
			return n, err
		}
		if age := now.Sub(info.ModTime()); age >= 0 && age < reservationGrace {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return n, err
		}
		used, err := isInUse(a, string(text))
		if err != nil {
			return n, fmt.Errorf("check whether a pod has %s: %w", a, err)
		}
		if used {
			continue
		}
		if err := os.Remove(path); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// isInUse reports whether the pod of a reservation exists on the machine. The reservation names the container and the
// interface in it.
func isInUse(a netip.Addr, reservation string) (bool, error) {
	if container, inside, _ := strings.Cut(strings.TrimSpace(reservation), "\n"); container != "" {
		_, err := netlink.LinkByName(Name(strings.TrimSpace(container), strings.TrimSpace(inside)))
		if missing := (netlink.LinkNotFoundError{}); err == nil || !errors.As(err, &missing) {
			return err == nil, err
		}
	}
	family := netlink.FAMILY_V4
	if a.Is6() {
		family = netlink.FAMILY_V6
	}
	routes, err := netlink.RouteListFiltered(family, &netlink.Route{Dst: hostNetwork(a)}, netlink.RT_FILTER_DST)
	return len(routes) > 0, err
}
