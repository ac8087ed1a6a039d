// Command inside is the init process of a user-mode Linux machine with cgroup v2. It creates the cgroups of pods as the
// kubelet does, and runs processes in them that exceed their limits.
package main

import (
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == "hold" {
		holdMemory(os.Args[2])
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "spin" {
		for i := uint64(0); i < math.MaxUint64; i++ { // uses the processor until the process is killed
		}
		return
	}
	fmt.Println("outcome:", runChecks())
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func runChecks() string {
	for _, m := range []struct{ what, at string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"cgroup2", "/sys/fs/cgroup"}} {
		if err := unix.Mount(m.what, m.at, m.what, 0, ""); err != nil {
			return fmt.Sprintf("mount %s: %v", m.at, err)
		}
	}
	failed := 0
	for _, c := range checks {
		n := newNode()
		err := n.Setup(allLimits)
		if err == nil {
			err = c.do(n)
		}
		if e := n.cleanUp(); err == nil {
			err = e
		}
		if err != nil {
			failed++
			fmt.Printf("FAIL %s: %v\n", c.name, err)
		} else {
			fmt.Printf("ok   %s\n", c.name)
		}
	}
	if failed > 0 {
		return fmt.Sprintf("%d failed", failed)
	}
	return "all well"
}
