// Command demo shows the main job on this host: three machines that have nothing but
// Linux, systemd and sshd become a cluster with a workload that answers.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"clusterctl/tests/cluster"
	"clusterctl/tests/lab/machines"
	"clusterctl/tests/webimage"
)

const name = "demo"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	verbs := map[string]func(context.Context) error{"up": up, "down": down}
	if len(os.Args) != 2 || verbs[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: demo up|down")
		os.Exit(2)
	}
	if err := verbs[os.Args[1]](ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func up(ctx context.Context) error {
	root, err := cluster.Root()
	if err != nil {
		return err
	}
	files := map[string]string{}
	for name, source := range map[string]string{"cluster.hcl": "examples/small/cluster.hcl", "web.hcl": "tests/demo/web.hcl"} {
		text, err := os.ReadFile(filepath.Join(root, source))
		if err != nil {
			return err
		}
		files[name] = string(text)
	}
	fmt.Println("== Three machines boot: control (10.99.0.11), a (10.99.0.21), b (10.99.0.22)")
	c, err := cluster.New(ctx, cluster.Options{Name: name, Files: files, Log: os.Stdout,
		Machines: []string{"control=10.99.0.11", "a=10.99.0.21", "b=10.99.0.22"}})
	if err != nil {
		return err
	}
	if err := webimage.Write(c.Bundle, filepath.Join(c.Folder, "images/web.tar")); err != nil {
		return err
	}
	fmt.Println("== clusterctl apply")
	started := time.Now()
	if err := c.Apply(ctx, os.Stdout); err != nil {
		return err
	}
	if err := answers(ctx, c); err != nil {
		return err
	}
	fmt.Printf("== %.1f s from bare machines to a workload that answers\n", time.Since(started).Seconds())
	next(c)
	return nil
}

// answers shows that nodes are ready and that the workload serves, from another machine,
// through its Service address and through a node's port.
func answers(ctx context.Context, c *cluster.Cluster) error {
	nodes, err := cluster.Output(c.Kube(ctx, "get", "nodes,pods", "-A", "-o", "wide"))
	if err != nil {
		return err
	}
	fmt.Print(nodes)
	service, err := cluster.Output(c.Kube(ctx, "get", "service", "web", "-n", "shop", "-o", "jsonpath={.spec.clusterIP}"))
	if err != nil {
		return err
	}
	for _, try := range []struct{ from, url string }{
		{"a", "http://" + service + "/"},
		{"control", "http://10.99.0.22:30080/"},
	} {
		var answer string
		err := cluster.Eventually(ctx, 30*time.Second, func(ctx context.Context) error {
			var err error
			answer, err = c.Lab.Machine(try.from).Run(ctx, "curl -sf -m 2 "+try.url)
			return err
		})
		if err != nil {
			return fmt.Errorf("the workload does not answer: %w", err)
		}
		fmt.Printf("%s$ curl %s\n%s\n", try.from, try.url, strings.TrimSpace(answer))
	}
	return nil
}

func next(c *cluster.Cluster) {
	fmt.Printf(`
== Try, as root:
  %[3]s/lab -name demo ssh control                       # a shell on a machine
  alias in-demo='HOME=%[1]s KUBECONFIG=%[2]s %[3]s/lab -name demo exec'
  in-demo %[3]s/kubectl get pods -A -o wide
  in-demo %[3]s/kubectl scale deployment/web -n shop --replicas=5
  in-demo %[3]s/clusterctl plan %[4]s
  %[3]s/lab -name demo kill b                            # a power cut
Then: make demo-down
`, c.Lab.Home(), c.Kubeconfig(), c.Bundle, c.Folder)
}

func down(ctx context.Context) error {
	lab, err := machines.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		fmt.Println("nothing is up")
		return nil
	} else if err != nil {
		return err
	}
	if err := lab.Down(ctx); err != nil {
		return err
	}
	fmt.Printf("The demo is gone. Kept for the next time: %s (the machines' root file system); make clean removes it.\n", machines.CacheDir)
	return nil
}
