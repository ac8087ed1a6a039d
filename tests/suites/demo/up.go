package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/lab/machines"
	"clusterctl/tests/programs/webimage"
)

func startCluster(ctx context.Context, name string) error {
	if _, err := machines.Open(name); err == nil {
		return fmt.Errorf("it is up already: %s try prints commands to try, make demo-down ends it", programFor(name))
	}
	root, err := cluster.Root()
	if err != nil {
		return err
	}
	files := map[string]string{}
	for name, source := range map[string]string{"cluster.hcl": "examples/small/cluster.hcl",
		"web.hcl": "tests/suites/demo/web.hcl"} {
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
	if err := provisionCluster(ctx, c); err != nil {
		return fmt.Errorf("%w\nThe machines are still up, for a look at them: %s ssh control; make demo-down ends them",
			err, programFor(name))
	}
	return printCommands(os.Stdout, c)
}

// provisionCluster makes a cluster of the machines.
func provisionCluster(ctx context.Context, c *cluster.Cluster) error {
	if err := webimage.Write(c.Bundle, filepath.Join(c.Folder, "images/web.tar")); err != nil {
		return err
	}
	fmt.Println("== clusterctl apply")
	started := time.Now()
	if err := c.Apply(ctx, os.Stdout); err != nil {
		return err
	}
	if err := checkAnswers(ctx, c); err != nil {
		return err
	}
	fmt.Printf("== %.1f s from bare machines to a workload that answers\n", time.Since(started).Seconds())
	return nil
}

// checkAnswers prints the nodes and pods, and checks from other machines that the workload serves through its Service
// address and through a node's port.
func checkAnswers(ctx context.Context, c *cluster.Cluster) error {
	for _, path := range []string{"/api/v1/nodes", "/api/v1/pods"} {
		if err := printTable(ctx, os.Stdout, c, path); err != nil {
			return err
		}
	}
	var service struct{ Spec struct{ ClusterIP string } }
	if err := getAsAdmin(ctx, c, "/api/v1/namespaces/shop/services/web", "application/json", &service); err != nil {
		return err
	}
	for _, try := range []struct{ from, url string }{
		{"a", "http://" + service.Spec.ClusterIP + "/"},
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
