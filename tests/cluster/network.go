package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// aliasAddress stands for the host's address. kube-apiserver refuses to publish a loopback address as an
// endpoint of the kubernetes Service; this one is reserved for documentation, so it collides with nothing.
const aliasAddress = "198.51.100.1"

// insideVariable shows a test process that it already runs in a network namespace of its own.
const insideVariable = "FAIRGATE_CLUSTER_NAMESPACE"

// runIsolated runs this test binary again, with the same arguments, in a new network namespace, and
// returns its exit code. It needs CAP_SYS_ADMIN or unprivileged user namespaces; an error means that
// the process could not be started there and nothing has run.
func runIsolated(environment ...string) (int, error) {
	attempts := []*syscall.SysProcAttr{
		{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL},
		{
			Cloneflags:  syscall.CLONE_NEWNET | syscall.CLONE_NEWUSER,
			Pdeathsig:   syscall.SIGKILL,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		},
	}
	var failure error
	for _, attributes := range attempts {
		again := exec.Command("/proc/self/exe", os.Args[1:]...)
		again.Env = append(append(os.Environ(), insideVariable+"=1"), environment...)
		again.Stdout, again.Stderr = os.Stdout, os.Stderr
		again.SysProcAttr = attributes
		if failure = again.Start(); failure != nil {
			continue
		}
		if err := again.Wait(); err != nil && again.ProcessState == nil {
			return 0, err
		}
		if code := again.ProcessState.ExitCode(); code >= 0 {
			return code, nil
		}
		return 1, nil // ended by a signal
	}
	return 0, failure
}

// prepareNamespace brings loopback up and gives it the alias.
func prepareNamespace() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)

	loopback, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(socket, unix.SIOCGIFFLAGS, loopback); err != nil {
		return fmt.Errorf("flags of lo: %w", err)
	}
	loopback.SetUint16(loopback.Uint16() | unix.IFF_UP)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, loopback); err != nil {
		return fmt.Errorf("lo up: %w", err)
	}

	alias, err := unix.NewIfreq("lo:1")
	if err != nil {
		return err
	}
	if err := alias.SetInet4Addr(net.ParseIP(aliasAddress).To4()); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFADDR, alias); err != nil {
		return fmt.Errorf("address %s on lo: %w", aliasAddress, err)
	}
	return nil
}

// hostAddress returns an address of this host that kube-apiserver may publish: the namespace's alias or,
// outside of one, the first address of an interface. Packets to it stay in the host either way.
func hostAddress() (string, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	found := ""
	for _, address := range addresses {
		network, ok := address.(*net.IPNet)
		if !ok || network.IP.To4() == nil || !network.IP.IsGlobalUnicast() {
			continue
		}
		if network.IP.String() == aliasAddress {
			return aliasAddress, nil
		}
		if found == "" {
			found = network.IP.String()
		}
	}
	if found == "" {
		return "", fmt.Errorf("no address but loopback, and no network namespace: "+
			"run as root, allow user namespaces, or `ip address add %s/32 dev lo`", aliasAddress)
	}
	return found, nil
}

var (
	portsMutex sync.Mutex
	portsGiven = map[int]bool{}
)

// freePort finds a port that is free on all the addresses and that this process has not given out. It
// lies below the kernel's ephemeral range, so no outgoing connection takes it in the meantime.
func freePort(addresses ...string) (int, error) {
	portsMutex.Lock()
	defer portsMutex.Unlock()
	for range 1000 {
		port := 20000 + rand.IntN(10000)
		if !portsGiven[port] && isFree(port, addresses) {
			portsGiven[port] = true
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port on %v in 20000–29999", addresses)
}

func isFree(port int, addresses []string) bool {
	for _, address := range addresses {
		listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		if err != nil {
			return false
		}
		defer listener.Close()
	}
	return true
}
