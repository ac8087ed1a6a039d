package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/tests/chaos/fault"
	"clusterctl/tests/cluster"
)

// testMinority cuts the power of two of three control-plane machines and checks the answers of the third. Writes, and
// reads that must be current, end with an error that states the reason, and the API server is not ready. Reads that may
// be old are answered. Writes succeed again when the machines are back.
//
//style:long one scenario, step by step
func testMinority(ctx context.Context, name string) error {
	c, err := cluster.Open(name)
	if err != nil {
		return err
	}
	last := machineNames.Control[len(machineNames.Control)-1]
	own, err := newClient(c, last)
	if err != nil {
		return err
	}
	look := make(chan error, 1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		if err := (fault.Fault{Kind: fault.Power, Machines: machineNames.Control[:2], Duration: time.Minute}).Run(ctx,
			c.Lab,
			newRepair(c)); err != nil {
			look <- err
		}
	}()
	maps := own.CoreV1().ConfigMaps(namespace)
	ask := func(what func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		return what(ctx)
	}
	write := func(ctx context.Context) error {
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "minority-"}},
			metav1.CreateOptions{})
		return err
	}
	fails := func(ctx context.Context) error {
		return cluster.Eventually(ctx, 30*time.Second, func(context.Context) error {
			err := ask(write)
			fmt.Printf("%s a write says: %v\n", stamp(), err)
			if err == nil || !strings.Contains(err.Error(), "etcd has no leader") {
				return fmt.Errorf("a write was answered with %v", err)
			}
			return nil
		})
	}
	err = fails(ctx)
	if err == nil {
		err = ask(write)
		fmt.Printf("%s a write says: %v\n", stamp(), err)
		if apierrors.IsTimeout(err) {
			err = nil
		} else {
			err = fmt.Errorf("a write ends with %q, not as timed out", apierrors.ReasonForError(err))
		}
	}
	for what, read := range map[string]func(ctx context.Context) error{
		"get": func(ctx context.Context) error {
			_, err := maps.Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
			return err
		},
		"list": func(ctx context.Context) error { _, err := maps.List(ctx, metav1.ListOptions{}); return err },
	} {
		if readErr := ask(read); readErr == nil {
			err = errors.Join(err, fmt.Errorf("a %s that must be current was answered", what))
		} else {
			fmt.Printf("%s a %s says: %v\n", stamp(), what, readErr)
		}
	}
	if anyErr := ask(func(ctx context.Context) error {
		_, err := maps.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		return err
	}); anyErr != nil {
		err = errors.Join(err, fmt.Errorf("a list of any age: %w", anyErr))
	}
	if text, readyErr := own.Discovery().RESTClient().Get().AbsPath("/readyz").Param("verbose",
		"").DoRaw(ctx); readyErr == nil {
		err = errors.Join(err, errors.New("it says that it is ready"))
	} else {
		for _, line := range strings.Split(string(text), "\n") {
			if strings.HasPrefix(line, "[-]") {
				fmt.Printf("%s readyz says: %s\n", stamp(), line)
			}
		}
	}
	<-over
	select {
	case powerErr := <-look:
		err = errors.Join(err, powerErr)
	default:
	}
	back := cluster.Eventually(ctx, recoveryTimeout, func(context.Context) error { return ask(write) })
	if back == nil {
		fmt.Printf("%s with a majority back, writes go on\n", stamp())
	}
	return errors.Join(err, back)
}
