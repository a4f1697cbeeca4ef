package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// A Hosted is a server that hosts the API itself: a fairgate without an upstream, or any other that is
// named by a kubeconfig.
type Hosted struct {
	Admin   string       // kubeconfig of somebody who may do everything
	User    string       // kubeconfig of somebody who may not; "" when there is none
	Restart func() error // nil when the server cannot be restarted
	Stop    func() error
	running func() *process // nil when it is not one of our processes
	// Hosts that serve the same objects, host:port each: requests go to them in turn. None if there is but the one of the kubeconfig.
	alternate []string
	// inEffect says whether a level is in force everywhere; nil where the metrics of the main port tell that.
	inEffect func(level string) (bool, error)
	// credential is that of a user, where the administrator may not be another user; else nil.
	credential func(user string) (User, error)
}

// StartStandalone starts fairgate as a new user does: without a configuration, in an empty
// directory, into which it writes kubeconfigs.
func StartStandalone(dir string) (*Hosted, error) {
	program, err := FairgateProgram()
	if err != nil {
		return nil, err
	}
	admin := filepath.Join(dir, ".fairgate", "admin.kubeconfig")
	var running *process
	start := func() error {
		if running, err = startProcess(dir, "fairgate", program, "serve"); err != nil {
			return err
		}
		if err := running.untilReady(readyLimit, func() error { return readyBy(admin) }); err != nil {
			return fmt.Errorf("%w\n%s", err, running.tail(40))
		}
		return nil
	}
	if err := start(); err != nil {
		return nil, errors.Join(err, running.stop(0))
	}
	// Left alone it would spread the ends of watches over a minute.
	stop := func() error { return running.stopNow(drainLimit) }
	return &Hosted{
		Admin: admin,
		User:  filepath.Join(dir, ".fairgate", "user.kubeconfig"),
		Restart: func() error {
			if err := stop(); err != nil {
				return err
			}
			return start()
		},
		Stop:    stop,
		running: func() *process { return running },
	}, nil
}

// readyBy checks whether the server of a kubeconfig is ready.
func readyBy(kubeconfig string) error {
	if _, err := os.Stat(kubeconfig); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return err
	}
	return healthy(&http.Client{Transport: transport, Timeout: readyLimit}, config.Host+"/readyz")
}
