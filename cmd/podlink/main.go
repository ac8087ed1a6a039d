// Command podlink is the CNI plugin that connects a pod to its machine by a routed pair of interfaces. Addresses come
// from the plugin that the configuration names under ipam.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/containernetworking/plugins/pkg/ipam"

	"clusterctl/daemons/network/link"
	release "clusterctl/daemons/version"
)

// linkConfiguration is the CNI configuration passed by the runtime.
type linkConfiguration struct {
	types.NetConf
	MTU int `json:"mtu"`
}

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{Add: addLink, Del: deleteLink, Check: checkLink, Status: checkStatus},
		version.VersionsStartingFrom("0.4.0"), "podlink "+release.Version)
}

func readConfiguration(args *skel.CmdArgs) (c linkConfiguration, err error) {
	if err := json.Unmarshal(args.StdinData, &c); err != nil {
		return c, fmt.Errorf("read the network's configuration: %w", err)
	}
	if c.IPAM.Type == "" {
		return c, fmt.Errorf("the network's configuration names no plugin for addresses (ipam)")
	}
	return c, version.ParsePrevResult(&c.NetConf)
}

func addLink(args *skel.CmdArgs) (err error) {
	c, err := readConfiguration(args)
	if err != nil {
		return err
	}
	got, err := requestAddresses(c, args)
	if err != nil {
		return fmt.Errorf("get addresses for the pod: %w", err)
	}
	defer func() {
		if err != nil {
			_ = ipam.ExecDel(c.IPAM.Type, args.StdinData) // the runtime calls DEL again after a failed ADD
		}
	}()
	result, err := current.NewResultFromResult(got)
	if err != nil {
		return err
	}
	p, err := newPair(args, c.MTU, result.IPs)
	if err != nil {
		return err
	}
	if err := p.Create(args.Netns); err != nil {
		return err
	}
	host, inside := p.MACs()
	result.Interfaces = []*current.Interface{
		{Name: p.Host, Mac: host.String()},
		{Name: p.Inside, Mac: inside.String(), Sandbox: args.Netns},
	}
	for _, ip := range result.IPs {
		ip.Interface = current.Int(1)
	}
	return types.PrintResult(result, c.CNIVersion)
}

// requestAddresses requests the pod's addresses. If none are left, it first releases addresses of pods that no longer
// exist.
func requestAddresses(c linkConfiguration, args *skel.CmdArgs) (types.Result, error) {
	got, err := ipam.ExecAdd(c.IPAM.Type, args.StdinData)
	if err == nil || c.IPAM.Type != "host-local" || !strings.Contains(err.Error(), "no IP addresses available") {
		return got, err
	}
	n, failed := link.Reclaim(filepath.Join(link.Reservations, c.Name), time.Now())
	if n == 0 {
		return nil, errors.Join(err, failed)
	}
	return ipam.ExecAdd(c.IPAM.Type, args.StdinData)
}

// newPair returns the interface pair of a pod with these addresses.
func newPair(args *skel.CmdArgs, mtu int, ips []*current.IPConfig) (p link.Pair, err error) {
	p = link.Pair{Host: link.Name(args.ContainerID, args.IfName), Inside: args.IfName, MTU: mtu}
	if len(ips) == 0 {
		return p, fmt.Errorf("the plugin for addresses has given none")
	}
	for _, ip := range ips {
		own, ok := netip.AddrFromSlice(ip.Address.IP)
		gateway, exists := netip.AddrFromSlice(ip.Gateway)
		if !ok || !exists {
			return p, fmt.Errorf("the plugin for addresses has given %s with the gateway %q", ip.Address.IP, ip.Gateway)
		}
		p.Addresses = append(p.Addresses, link.Address{IP: own.Unmap(), Gateway: gateway.Unmap()})
	}
	return p, nil
}

func deleteLink(args *skel.CmdArgs) error {
	c, err := readConfiguration(args)
	if err != nil {
		return err
	}
	// The address must not be released before nothing leads to it any more.
	if err := link.Remove(link.Name(args.ContainerID, args.IfName), args.IfName, args.Netns); err != nil {
		return err
	}
	return ipam.ExecDel(c.IPAM.Type, args.StdinData)
}

func checkLink(args *skel.CmdArgs) error {
	c, err := readConfiguration(args)
	if err != nil {
		return err
	}
	if err := ipam.ExecCheck(c.IPAM.Type, args.StdinData); err != nil {
		return err
	}
	if c.PrevResult == nil {
		return fmt.Errorf("the runtime does not say what the pod was given (prevResult)")
	}
	result, err := current.NewResultFromResult(c.PrevResult)
	if err != nil {
		return err
	}
	p, err := newPair(args, c.MTU, result.IPs)
	if err != nil {
		return err
	}
	return p.Check(args.Netns)
}

func checkStatus(args *skel.CmdArgs) error {
	c, err := readConfiguration(args)
	if err != nil {
		return err
	}
	return ipam.ExecStatus(c.IPAM.Type, args.StdinData)
}
