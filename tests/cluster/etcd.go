package cluster

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// An Etcd is a member of an etcd, usually its only one. It keeps its address and its data from one start to the next.
type Etcd struct {
	URL string

	name    string
	cluster string // all members: name=URL of each

	program string
	dir     string // its log and its data
	peer    string
	running *process
}

// NewEtcd chooses an address and a directory below dir. Nothing runs yet.
func NewEtcd(dir, bin string) (*Etcd, error) {
	etcd, err := newMember(dir, bin, "test")
	if err != nil {
		return nil, err
	}
	etcd.cluster = etcd.name + "=" + etcd.peer
	return etcd, nil
}

// NewEtcdMembers are so many members of one etcd. They have to be started at the same time.
func NewEtcdMembers(dir, bin string, count int) ([]*Etcd, error) {
	var members []*Etcd
	var all []string
	for index := range count {
		member, err := newMember(dir, bin, fmt.Sprintf("member%d", index))
		if err != nil {
			return nil, err
		}
		members, all = append(members, member), append(all, member.name+"="+member.peer)
	}
	for _, member := range members {
		member.cluster = strings.Join(all, ",")
	}
	return members, nil
}

func newMember(dir, bin, name string) (*Etcd, error) {
	client, err := freePort("127.0.0.1")
	if err != nil {
		return nil, err
	}
	peer, err := freePort("127.0.0.1")
	if err != nil {
		return nil, err
	}
	own, err := os.MkdirTemp(dir, "etcd-")
	if err != nil {
		return nil, err
	}
	return &Etcd{
		URL:     fmt.Sprintf("http://127.0.0.1:%d", client),
		name:    name,
		program: filepath.Join(bin, "etcd"),
		dir:     own,
		peer:    fmt.Sprintf("http://127.0.0.1:%d", peer),
	}, nil
}

// Start starts it and waits until it answers.
func (e *Etcd) Start() error {
	var err error
	e.running, err = startProcess(e.dir, "etcd", e.program,
		"--name="+e.name, "--data-dir="+filepath.Join(e.dir, "data"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+e.URL, "--advertise-client-urls="+e.URL,
		"--listen-peer-urls="+e.peer, "--initial-advertise-peer-urls="+e.peer, "--initial-cluster="+e.cluster)
	if err != nil {
		return err
	}
	return e.running.untilReady(readyLimit, func() error { return healthy(http.DefaultClient, e.URL+"/health") })
}

// Stop ends it; its data stays on disk. It may be called at any time.
func (e *Etcd) Stop() error {
	if e == nil {
		return nil
	}
	return e.running.stop(stopGrace)
}

// Kill ends it at once, as a crash does.
func (e *Etcd) Kill() error {
	if err := e.running.cmd.Process.Kill(); err != nil {
		return err
	}
	<-e.running.done
	return nil
}

// Freeze stops it from running: its connections stay open, and nobody answers. Thaw lets it run again.
func (e *Etcd) Freeze() error { return e.running.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw ends Freeze.
func (e *Etcd) Thaw() error { return e.running.cmd.Process.Signal(syscall.SIGCONT) }

// Leads tells whether it leads its cluster.
func (e *Etcd) Leads(ctx context.Context) (bool, error) {
	var status struct {
		Header struct {
			Member string `json:"member_id"`
		} `json:"header"`
		Leader string `json:"leader"`
	}
	err := e.call(ctx, "/v3/maintenance/status", struct{}{}, &status)
	return status.Leader == status.Header.Member, err
}

// Log returns the last lines that it wrote.
func (e *Etcd) Log(lines int) string {
	if e == nil {
		return ""
	}
	return e.running.tail(lines)
}

// Revision requests the revision of the newest change.
func (e *Etcd) Revision(ctx context.Context) (uint64, error) {
	_, revision, err := e.keys(ctx, "/no key is called so")
	return revision, err
}

// Keys are all keys that begin with prefix.
func (e *Etcd) Keys(ctx context.Context, prefix string) ([]string, error) {
	keys, _, err := e.keys(ctx, prefix)
	return keys, err
}

// Compact removes the history before revision.
func (e *Etcd) Compact(ctx context.Context, revision uint64) error {
	order := map[string]any{"revision": strconv.FormatUint(revision, 10), "physical": true}
	return e.call(ctx, "/v3/kv/compaction", order, &struct{}{})
}

func (e *Etcd) keys(ctx context.Context, prefix string) ([]string, uint64, error) {
	end := []byte(prefix)
	end[len(end)-1]++
	question := map[string]any{
		"key": base64.StdEncoding.EncodeToString([]byte(prefix)), "range_end": base64.StdEncoding.EncodeToString(end), "keys_only": true,
	}
	var answer struct {
		Header struct {
			Revision uint64 `json:"revision,string"`
		} `json:"header"`
		Kvs []struct {
			Key []byte `json:"key"`
		} `json:"kvs"`
	}
	if err := e.call(ctx, "/v3/kv/range", question, &answer); err != nil {
		return nil, 0, err
	}
	var keys []string
	for _, found := range answer.Kvs {
		keys = append(keys, string(found.Key))
	}
	return keys, answer.Header.Revision, nil
}

// call uses the JSON form of etcd's API, for which no client is needed.
func (e *Etcd) call(ctx context.Context, path string, question, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.New("etcd: " + path + ": " + response.Status + ": " + string(text))
	}
	return json.Unmarshal(text, answer)
}
