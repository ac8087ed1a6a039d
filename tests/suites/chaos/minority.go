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
	"k8s.io/client-go/kubernetes"

	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/suites/chaos/fault"
)

// testMinority cuts the power of two of three control-plane machines and checks the answers of the third. Writes, and
// reads that must be current, end with an error that states the reason, and the API server is not ready. Reads that may
// be old are answered. Writes succeed again when the machines are back.
func testMinority(ctx context.Context, name string) error {
	c, err := cluster.Open(name)
	if err != nil {
		return err
	}
	own, err := newClient(c, machineNames.Control[len(machineNames.Control)-1])
	if err != nil {
		return err
	}
	w := minority{own}
	ended := make(chan error, 1)
	go func() { ended <- cutMajority(ctx, c) }()
	err = w.checkWrites(ctx)
	err = errors.Join(err, w.checkReads(ctx), w.checkReadiness(ctx), <-ended)
	back := cluster.Eventually(ctx, recoveryTimeout, func(context.Context) error { return limited(ctx, w.write) })
	if back == nil {
		fmt.Printf("%s with a majority back, writes go on\n", stamp())
	}
	return errors.Join(err, back)
}

// cutMajority cuts the power of two control-plane machines for a minute.
func cutMajority(ctx context.Context, c *cluster.Cluster) error {
	return fault.Fault{Kind: fault.Power, Machines: machineNames.Control[:2], Duration: time.Minute}.Run(ctx, c.Lab,
		newRepair(c))
}

// limited calls do with a timeout of 15 s.
func limited(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	return do(ctx)
}

// minority is a client of the machine that remains.
type minority struct{ api kubernetes.Interface }

func (w minority) write(ctx context.Context) error {
	_, err := w.api.CoreV1().ConfigMaps(namespace).Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "minority-"}}, metav1.CreateOptions{})
	return err
}

// checkWrites waits until a write fails because etcd has no leader, and checks that such writes count as timed out.
func (w minority) checkWrites(ctx context.Context) error {
	err := cluster.Eventually(ctx, 30*time.Second, func(context.Context) error {
		err := limited(ctx, w.write)
		fmt.Printf("%s a write says: %v\n", stamp(), err)
		if err == nil || !strings.Contains(err.Error(), "etcd has no leader") {
			return fmt.Errorf("a write was answered with %v", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = limited(ctx, w.write)
	fmt.Printf("%s a write says: %v\n", stamp(), err)
	if !apierrors.IsTimeout(err) {
		return fmt.Errorf("a write ends with %q, not as timed out", apierrors.ReasonForError(err))
	}
	return nil
}

// checkReads checks that reads that must be current fail, and that a list of any age is answered.
func (w minority) checkReads(ctx context.Context) (err error) {
	maps := w.api.CoreV1().ConfigMaps(namespace)
	for what, read := range map[string]func(ctx context.Context) error{
		"get": func(ctx context.Context) error {
			_, err := maps.Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
			return err
		},
		"list": func(ctx context.Context) error { _, err := maps.List(ctx, metav1.ListOptions{}); return err },
	} {
		if readErr := limited(ctx, read); readErr == nil {
			err = errors.Join(err, fmt.Errorf("a %s that must be current was answered", what))
		} else {
			fmt.Printf("%s a %s says: %v\n", stamp(), what, readErr)
		}
	}
	if anyErr := limited(ctx, func(ctx context.Context) error {
		_, err := maps.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		return err
	}); anyErr != nil {
		err = errors.Join(err, fmt.Errorf("a list of any age: %w", anyErr))
	}
	return err
}

// checkReadiness checks that the API server is not ready, and prints why.
func (w minority) checkReadiness(ctx context.Context) error {
	text, err := w.api.Discovery().RESTClient().Get().AbsPath("/readyz").Param("verbose", "").DoRaw(ctx)
	if err == nil {
		return errors.New("it says that it is ready")
	}
	for _, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "[-]") {
			fmt.Printf("%s readyz says: %s\n", stamp(), line)
		}
	}
	return nil
}
