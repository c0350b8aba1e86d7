package configs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// ClientsFile is the file that `client add` writes and every load reads beside the configuration.
func ClientsFile(stateDir string) string { return filepath.Join(stateDir, "clients.yaml") }

// clientsOnly is the schema of that file.
type clientsOnly struct {
	Clients []Client `mapstructure:"clients"`
}

func clientsShape() *shape { return shapeOf(reflect.TypeFor[clientsOnly]()) }

// readClientsTree reads state_dir/clients.yaml; a missing file has no clients. Others must not be able to read the
// hashes, nor to write themselves in.
func readClientsTree(name string) (*tree, []Problem) {
	at := place{from: fromClients, name: name}
	st, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && st.Mode().Perm()&0o077 != 0 {
		err = fmt.Errorf("has mode %04o; it must be 0600", st.Mode().Perm())
	}
	var data []byte
	if err == nil {
		data, err = readFile(name)
	}
	if err != nil {
		return nil, []Problem{at.problem(plainFileError(err).Error())}
	}
	p := &parser{at: at}
	t := p.parse(clientsShape(), data)
	return t, p.problems
}

// addClients appends the clients of the state folder to the file's own; a name in both is an error.
func addClients(file, extra *tree) (*tree, []Problem) {
	if extra == nil || extra.block["clients"] == nil || len(extra.block["clients"].items) == 0 {
		return file, nil
	}
	if file == nil {
		file = newBlock(extra.at)
	}
	var problems []Problem
	list := &tree{kind: kindList, at: extra.block["clients"].at}
	own := map[string]*tree{}
	if have := file.block["clients"]; have != nil {
		list.at = have.at
		for _, c := range have.items {
			list.items = append(list.items, c)
			own[c.name()] = c
		}
	}
	for _, c := range extra.block["clients"].items {
		if first := own[c.name()]; first != nil && c.name() != "" {
			problems = append(problems, c.block["name"].at.problem(fmt.Sprintf("%q is also in %s, line %d; a client has one place",
				c.name(), first.at.name, first.at.line)))
			continue
		}
		list.items = append(list.items, c)
	}
	out := newBlock(file.at)
	for _, k := range file.keys {
		out.set(k, file.block[k])
	}
	out.set("clients", list)
	return out, problems
}

// ReadClients reads a clients.yaml alone; a missing file has no clients. The error is *Error.
func ReadClients(name string) ([]Client, error) {
	t, ps := readClientsTree(name)
	if len(ps) > 0 {
		return nil, &Error{ps}
	}
	if t == nil {
		return nil, nil
	}
	s := clientsShape()
	var out clientsOnly
	if err := decodeInto(complete(s, t).plain(), &out); err != nil {
		return nil, &Error{[]Problem{{File: name, Text: err.Error()}}}
	}
	return out.Clients, nil
}

// WriteClients replaces a clients.yaml as a whole: a new file of mode 0600 beside it, synced, then renamed over it.
func WriteClients(name string, clients []Client) error {
	s := clientsShape()
	n := nodeOf(s, treeOf(s, reflect.ValueOf(clientsOnly{Clients: append([]Client{}, clients...)}), place{}), nil)
	body, err := yaml.Marshal(n)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".clients-*.yaml") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer os.Remove(f.Name()) // no effect once renamed
	_, err = f.WriteString("# written by crawlgate client; the same keys as clients: in crawlgate.yaml\n" + string(body))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
