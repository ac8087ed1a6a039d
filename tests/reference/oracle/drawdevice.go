package oracle

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// classGPU is the extended resource name of the class a.
const classGPU = corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix + "a")

// devices draws devices of drivers, classes that represent extended resources, and claims with allocated devices.
func (d draws) devices(w *World) {
	if !d.oneIn(2, "devices") {
		return
	}
	for _, name := range []string{"a", "b", "any"}[:1+d.upTo(2, "classes")] {
		c := &resourcev1.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{
				Name:              name,
				CreationTimestamp: metav1.NewTime(firstStart.Add(time.Duration(d.upTo(1, "created")) * time.Second)),
			},
		}
		if name != "any" {
			c.Spec.Selectors = []resourcev1.DeviceSelector{
				{
					CEL: &resourcev1.CELDeviceSelector{
						Expression: fmt.Sprintf("device.driver == %q", name+".example.com"),
					},
				},
			}
		}
		if !d.oneIn(3, "no extended name") {
			extended := string(gpu)
			c.Spec.ExtendedResourceName = &extended
		}
		w.DeviceClasses = append(w.DeviceClasses, c)
	}
	for _, driver := range []string{"a.example.com", "b.example.com"} {
		for _, n := range w.Nodes {
			if d.oneIn(2, "slice") {
				w.Slices = append(w.Slices, d.slice(driver, n.Name, &n.Name))
			}
		}
		if d.oneIn(4, "devices of all nodes") {
			w.Slices = append(w.Slices, d.slice(driver, "network", nil))
		}
	}
	for i := range d.upTo(4, "claims of devices") {
		if len(w.Slices) == 0 {
			break
		}
		s := pickOne(d, "whose", w.Slices...)
		c := &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "a",
				Name:      fmt.Sprintf("devices%d", i),
				UID:       types.UID(fmt.Sprintf("uid-devices%d", i)),
			},
		}
		c.Status.Allocation = &resourcev1.AllocationResult{
			Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
				{
					Request: "r",
					Driver:  s.Spec.Driver,
					Pool:    s.Spec.Pool.Name,
					Device:  pickOne(d, "which", s.Spec.Devices...).Name,
				}}},
		}
		w.DeviceClaims = append(w.DeviceClaims, c)
	}
}

func (d draws) slice(driver, pool string, node *string) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: driver + "-" + pool},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: driver, Pool: resourcev1.ResourcePool{Name: pool, ResourceSliceCount: 1}, NodeName: node},
	}
	if node == nil {
		yes := true
		s.Spec.AllNodes = &yes
	}
	for i := range 1 + d.upTo(3, "devices") {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("d%d", i)})
	}
	return s
}
